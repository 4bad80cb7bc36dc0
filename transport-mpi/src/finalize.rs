//! What happens when MPI ends before the transports do.
//!
//! MPI deletes the attributes of `MPI_COMM_SELF` first of all when it is finalised, while it can still be called: the
//! hook that the standard offers for this.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, Weak};

use matching::lock;
use mpi::ffi;
use transport::Error;

use crate::MpiError;
use crate::engine::leave::{last_sweep, leave};
use crate::world::World;

static LIVE: Mutex<Vec<Weak<World>>> = Mutex::new(Vec::new());
static HOOKED: Mutex<bool> = Mutex::new(false);

/// Ends this world when MPI ends, if it still lives then.
pub(crate) fn watch(world: &Arc<World>) -> Result<(), MpiError> {
    let mut live = lock(&LIVE);
    live.retain(|world| world.strong_count() > 0);
    live.push(Arc::downgrade(world));
    drop(live);
    let mut hooked = lock(&HOOKED);
    if !*hooked {
        hook()?;
        *hooked = true;
    }
    Ok(())
}

fn hook() -> Result<(), MpiError> {
    let failed = |call, code: c_int| {
        let text = "the end of MPI cannot be watched".to_owned();
        if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(MpiError { call, code, text }) }
    };
    let mut key = 0;
    // SAFETY: MPI is running; both functions have the signatures that it expects, and use no extra state.
    unsafe {
        let code = ffi::MPI_Comm_create_keyval(Some(do_not_copy), Some(at_the_end), &raw mut key, null_mut());
        failed("MPI_Comm_create_keyval", code)?;
        failed("MPI_Comm_set_attr", ffi::MPI_Comm_set_attr(ffi::RSMPI_COMM_SELF, key, null_mut()))
    }
}

unsafe extern "C" fn do_not_copy(
    _: ffi::MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    copies: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes a place to write to.
    unsafe { *copies = 0 };
    ffi::MPI_SUCCESS as c_int
}

unsafe extern "C" fn at_the_end(_: ffi::MPI_Comm, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    let why = Error::Backend { detail: "MPI has been finalised".into(), source: None };
    for world in std::mem::take(&mut *lock(&LIVE)) {
        if let Some(world) = world.upgrade().filter(|world| world.begin_leave()) {
            leave(&world, &why);
        }
    }
    last_sweep();
    ffi::MPI_SUCCESS as c_int
}
