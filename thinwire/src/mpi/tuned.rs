//! Open MPI's component `tuned`: a communicator for each of its algorithms for MPI_Allreduce.
//!
//! A communicator takes its algorithm, when it is made, from the variable `coll_tuned_allreduce_algorithm`, provided
//! that `coll_tuned_use_dynamic_rules` was set when MPI began. MPI's tool interface reaches these variables, and knows
//! the names of the algorithms.

use std::env;
use std::ffi::{CStr, CString, c_int};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use ::mpi::ffi;
use ::mpi::raw::FromRaw as _;
use ::mpi::topology::SimpleCommunicator;
use ::mpi::traits::AsRaw as _;

use super::World;

const RULES: &str = "coll_tuned_use_dynamic_rules";
const ALGORITHM: &str = "coll_tuned_allreduce_algorithm";
const SEGMENT: &str = "coll_tuned_allreduce_algorithm_segmentsize";
/// The item of [`ALGORITHM`] that leaves the choice to the library.
const FREE: c_int = 0;
/// Bytes of a segment where the user gives none. Open MPI would then not divide at all, and its segmented ring be the
/// ring.
const DEFAULT_SEGMENT: c_int = 1 << 20;
/// `MPI_T_BIND_NO_OBJECT` of Open MPI, the only MPI with these variables. The bindings name the constant differently
/// for each MPI, by how its header defines it.
const NO_OBJECT: c_int = 0;

/// Lets MPI read the variables of this module. To be called before MPI begins, while the process has one thread.
pub(crate) fn allow_choice() {
    let variable = format!("OMPI_MCA_{RULES}");
    if env::var_os(&variable).is_none() {
        // SAFETY: no other thread reads the environment meanwhile: there is none before MPI and the transports begin.
        unsafe { env::set_var(variable, "1") };
    }
}

/// The algorithms that MPI_Allreduce can be held to.
pub(crate) struct Algorithms {
    algorithm: Variable,
    segment: Variable,
    /// With their names, the free choice left out.
    pub(crate) choices: Vec<(c_int, String)>,
    _tools: Tools,
}

impl Algorithms {
    /// Asks the library for them.
    ///
    /// # Errors
    /// Why there are none: another MPI, or settings that forbid the choice.
    pub(crate) fn find() -> Result<Self, String> {
        let tools = Tools::start()?;
        if Variable::find(RULES)?.read()? == 0 {
            return Err(format!("{RULES} is switched off"));
        }
        let (algorithm, segment) = (Variable::find(ALGORITHM)?, Variable::find(SEGMENT)?);
        let choices = algorithm.choices()?.into_iter().filter(|(item, _)| *item != FREE).collect();
        Ok(Self { algorithm, segment, choices, _tools: tools })
    }

    /// A communicator of the world's ranks whose MPI_Allreduce uses an algorithm. Every rank calls this alike.
    pub(crate) fn communicator(&self, world: &World, algorithm: c_int) -> Result<SimpleCommunicator, String> {
        let (usual, segment) = (self.algorithm.read()?, self.segment.read()?);
        if segment == 0 {
            self.segment.write(DEFAULT_SEGMENT)?;
        }
        self.algorithm.write(algorithm)?;
        let communicator = duplicate(world);
        self.algorithm.write(usual)?;
        self.segment.write(segment)?;
        communicator
    }
}

/// Duplicates a communicator for collectives by `tuned`, even where another component has priority.
fn duplicate(world: &World) -> Result<SimpleCommunicator, String> {
    let mut info = MaybeUninit::uninit();
    let mut duplicate = MaybeUninit::uninit();
    // SAFETY: MPI has begun, as there is a communicator; info and duplicate are read once MPI has written them.
    unsafe {
        check("MPI_Info_create", ffi::MPI_Info_create(info.as_mut_ptr()))?;
        let mut info = info.assume_init();
        let set = ffi::MPI_Info_set(info, c"ompi_comm_coll_preference".as_ptr(), c"tuned".as_ptr());
        check("MPI_Info_set", set)?;
        let code = ffi::MPI_Comm_dup_with_info(world.as_raw(), info, duplicate.as_mut_ptr());
        check("MPI_Comm_dup_with_info", code)?;
        check("MPI_Info_free", ffi::MPI_Info_free(&raw mut info))?;
        Ok(SimpleCommunicator::from_raw(duplicate.assume_init()))
    }
}

/// MPI's tool interface, while this lives.
struct Tools;

impl Tools {
    fn start() -> Result<Self, String> {
        let mut level = 0;
        // SAFETY: may be called at any time.
        let code = unsafe { ffi::MPI_T_init_thread(ffi::RSMPI_THREAD_SINGLE, &raw mut level) };
        check("MPI_T_init_thread", code).map(|()| Self)
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        // SAFETY: it was started. Nothing can be done about a failure.
        unsafe { ffi::MPI_T_finalize() };
    }
}

/// A whole number, or a truth value, by which the library is steered.
struct Variable {
    name: &'static str,
    handle: ffi::MPI_T_cvar_handle,
    items: ffi::MPI_T_enum,
}

impl Variable {
    /// Looks a variable up, while there are [`Tools`].
    fn find(name: &'static str) -> Result<Self, String> {
        let none = |_| format!("this MPI has no variable {name}");
        let text = CString::new(name).map_err(|error| error.to_string())?;
        let (mut index, mut bind, mut size, mut count) = (0, 0, 0, 0);
        let mut items = null_mut();
        let mut datatype = MaybeUninit::uninit();
        let mut handle = null_mut();
        // SAFETY: the tools have started; where no answer is wanted the standard allows null. The datatype is read
        // once MPI has written it.
        unsafe {
            check("MPI_T_cvar_get_index", ffi::MPI_T_cvar_get_index(text.as_ptr(), &raw mut index))
                .map_err(none)?;
            let code = ffi::MPI_T_cvar_get_info(
                index,
                null_mut(),
                null_mut(),
                null_mut(),
                datatype.as_mut_ptr(),
                &raw mut items,
                null_mut(),
                null_mut(),
                &raw mut bind,
                null_mut(),
            );
            check("MPI_T_cvar_get_info", code)?;
            check("MPI_Type_size", ffi::MPI_Type_size(datatype.assume_init(), &raw mut size))?;
            if bind != NO_OBJECT {
                return Err(format!("the variable {name} belongs to an object"));
            }
            let code = ffi::MPI_T_cvar_handle_alloc(index, null_mut(), &raw mut handle, &raw mut count);
            check("MPI_T_cvar_handle_alloc", code)?;
        }
        let variable = Self { name, handle, items };
        if count == 1 && usize::try_from(size).is_ok_and(|size| size <= size_of::<c_int>()) {
            Ok(variable)
        } else {
            Err(format!("the variable {name} is no whole number"))
        }
    }

    /// Its value; of a truth value only whether it is 0.
    fn read(&self) -> Result<c_int, String> {
        let mut value: c_int = 0;
        // SAFETY: the handle is valid until it is dropped; the variable is not larger than `value`.
        let code = unsafe { ffi::MPI_T_cvar_read(self.handle, (&raw mut value).cast()) };
        check(self.name, code).map(|()| value)
    }

    /// Sets a whole number.
    fn write(&self, value: c_int) -> Result<(), String> {
        // SAFETY: as for `read`.
        let code = unsafe { ffi::MPI_T_cvar_write(self.handle, (&raw const value).cast()) };
        check(self.name, code)
    }

    /// The values that it can have, with their names.
    fn choices(&self) -> Result<Vec<(c_int, String)>, String> {
        if self.items.is_null() {
            return Err(format!("the variable {} has no names for its values", self.name));
        }
        let mut count = 0;
        // SAFETY: the variable has names, and the tools that know them run while there is a variable.
        let code = unsafe { ffi::MPI_T_enum_get_info(self.items, &raw mut count, null_mut(), null_mut()) };
        check("MPI_T_enum_get_info", code)?;
        (0..count).map(|index| self.choice(index)).collect()
    }

    fn choice(&self, index: c_int) -> Result<(c_int, String), String> {
        let mut name = [0_u8; 128];
        let (mut item, mut length) = (0, name.len() as c_int);
        let room = name.as_mut_ptr().cast();
        // SAFETY: as for `choices`; MPI writes no more than `length` bytes, the 0 at the end included.
        let code =
            unsafe { ffi::MPI_T_enum_get_item(self.items, index, &raw mut item, room, &raw mut length) };
        check("MPI_T_enum_get_item", code)?;
        let name = CStr::from_bytes_until_nul(&name).map_err(|error| error.to_string())?;
        Ok((item, name.to_string_lossy().into_owned()))
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        // SAFETY: the handle is not used any more. Nothing can be done about a failure.
        unsafe { ffi::MPI_T_cvar_handle_free(&raw mut self.handle) };
    }
}

fn check(what: &str, code: c_int) -> Result<(), String> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(format!("{what} failed with code {code}")) }
}
