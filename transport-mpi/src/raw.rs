//! The calls of MPI that the engine makes, with results for error codes and requests that own their buffers.
//!
//! All unsafe code of the crate is here and in `finalize.rs`. What makes it sound:
//!
//! - A request and its buffer are one value, and the buffer's memory does not move when that value does. It is given
//!   back, or dropped, only when MPI has said that the request is complete; otherwise it is leaked.
//! - MPI is called only while it is initialised and not finalised: the engine ends when MPI begins to finalise.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};

use bytes::Bytes;
use mpi::ffi;
use mpi::traits::Communicator;

use crate::MpiError;
use crate::frame::SMALL;

fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(describe(call, code)) }
}

#[cold]
fn describe(call: &'static str, code: c_int) -> MpiError {
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length = 0;
    // SAFETY: the buffer is as long as MPI asks for.
    let told = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut length) };
    let known = told == ffi::MPI_SUCCESS as c_int;
    let length = if known { usize::try_from(length).unwrap_or(0) } else { 0 };
    let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default()).into_owned();
    MpiError { call, code, text }
}

/// Whether MPI can be called now.
pub(crate) fn is_running() -> bool {
    let (mut begun, mut ended) = (0, 0);
    // SAFETY: both may be called at any time.
    unsafe {
        ffi::MPI_Initialized(&raw mut begun);
        ffi::MPI_Finalized(&raw mut ended);
    }
    begun != 0 && ended == 0
}

/// Whether only MPI's main thread may call it, as at `MPI_THREAD_SINGLE` and `MPI_THREAD_FUNNELED`; and whether this
/// is that thread.
pub(crate) fn threads() -> Result<(bool, bool), MpiError> {
    let (mut level, mut main) = (0, 0);
    // SAFETY: MPI is running, which the caller has checked; the last is a constant of the library.
    let serialized = unsafe {
        check("MPI_Query_thread", ffi::MPI_Query_thread(&raw mut level))?;
        check("MPI_Is_thread_main", ffi::MPI_Is_thread_main(&raw mut main))?;
        ffi::RSMPI_THREAD_SERIALIZED
    };
    Ok((level < serialized, main != 0))
}

/// A communicator of our own, a duplicate of the user's.
#[derive(Clone, Copy)]
pub(crate) struct Comm(ffi::MPI_Comm);

// SAFETY: a handle is a number or an address that MPI looks up; which threads call MPI is the engine's care.
unsafe impl Send for Comm {}

/// Tags of our communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    /// Small messages, in slots.
    Small = 1,
    /// Long ones, announced by small ones.
    Bulk = 2,
}

impl Comm {
    /// Whether a communicator connects two groups of ranks.
    pub(crate) fn is_inter(communicator: &impl Communicator) -> Result<bool, MpiError> {
        let mut inter = 0;
        // SAFETY: the caller's communicator is valid while it is borrowed.
        let code = unsafe { ffi::MPI_Comm_test_inter(communicator.as_raw(), &raw mut inter) };
        check("MPI_Comm_test_inter", code)?;
        Ok(inter != 0)
    }

    /// Duplicates a communicator; collective over it. From here on errors are returned, not fatal.
    pub(crate) fn duplicate(communicator: &impl Communicator) -> Result<Self, MpiError> {
        let mut own = MaybeUninit::uninit();
        // SAFETY: as for `is_inter`; the handle is written before it is read.
        unsafe {
            let given = communicator.as_raw();
            check("MPI_Comm_dup", ffi::MPI_Comm_dup(given, own.as_mut_ptr()))?;
            let own = own.assume_init();
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(own, ffi::RSMPI_ERRORS_RETURN))?;
            Ok(Self(own))
        }
    }

    pub(crate) fn rank(self) -> Result<u32, MpiError> {
        let mut rank = 0;
        // SAFETY: the communicator is valid until it is freed, which takes the engine's last handle.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(self.0, &raw mut rank) })?;
        Ok(rank.unsigned_abs())
    }

    pub(crate) fn size(self) -> Result<usize, MpiError> {
        let mut size = 0;
        // SAFETY: as for `rank`.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(self.0, &raw mut size) })?;
        Ok(size.unsigned_abs() as usize)
    }

    /// Gives every rank the words of all, by rank.
    pub(crate) fn allgather<const N: usize>(
        self,
        own: [u64; N],
        size: usize,
    ) -> Result<Vec<[u64; N]>, MpiError> {
        let mut all = vec![[0; N]; size];
        let count = N as c_int;
        // SAFETY: `all` has room for `count` words of each of the `size` ranks; the call blocks until it is written.
        check("MPI_Allgather", unsafe {
            ffi::MPI_Allgather(
                own.as_ptr().cast(),
                count,
                ffi::RSMPI_UINT64_T,
                all.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT64_T,
                self.0,
            )
        })?;
        Ok(all)
    }

    /// Frees the communicator. Nothing may be under way on it.
    pub(crate) fn free(mut self) -> Result<(), MpiError> {
        // SAFETY: the handle is used no more; requests on it have ended.
        check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&raw mut self.0) })
    }

    /// Starts to send these bytes. They must stay where they are until the request is complete.
    unsafe fn isend(self, bytes: &[u8], to: u32, channel: Channel) -> Result<Request, MpiError> {
        let mut request = Request::NULL();
        // SAFETY: the caller keeps the bytes; no piece is longer than MPI counts.
        check("MPI_Isend", unsafe {
            ffi::MPI_Isend(
                bytes.as_ptr().cast::<c_void>(),
                bytes.len() as c_int,
                ffi::RSMPI_UINT8_T,
                to as c_int,
                channel as c_int,
                self.0,
                &raw mut request.0,
            )
        })?;
        Ok(request)
    }

    /// Starts to receive into this memory. It must stay where it is until the request is complete.
    unsafe fn irecv(
        self,
        memory: &mut [MaybeUninit<u8>],
        from: Option<u32>,
        channel: Channel,
    ) -> Result<Request, MpiError> {
        let mut request = Request::NULL();
        // SAFETY: the caller keeps the memory; no piece is longer than MPI counts.
        check("MPI_Irecv", unsafe {
            ffi::MPI_Irecv(
                memory.as_mut_ptr().cast::<c_void>(),
                memory.len() as c_int,
                ffi::RSMPI_UINT8_T,
                from.map_or(ffi::RSMPI_ANY_SOURCE, |from| from as c_int),
                channel as c_int,
                self.0,
                &raw mut request.0,
            )
        })?;
        Ok(request)
    }
}

/// Something under way in MPI.
struct Request(ffi::MPI_Request);

// SAFETY: as for `Comm`.
unsafe impl Send for Request {}

impl Request {
    #[allow(non_snake_case, reason = "a constant of the library, which Rust cannot make one")]
    fn NULL() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_REQUEST_NULL })
    }

    fn is_null(&self) -> bool {
        // SAFETY: a constant of the library.
        self.0 == unsafe { ffi::RSMPI_REQUEST_NULL }
    }

    /// Whether it is complete; makes progress if not.
    fn test(&mut self) -> Result<bool, MpiError> {
        let mut complete = 0;
        // SAFETY: a request of ours, or null, which is complete.
        let code = unsafe { ffi::MPI_Test(&raw mut self.0, &raw mut complete, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Test", code)?;
        Ok(complete != 0)
    }

    /// As `test`, with the sender and the number of bytes of a receive.
    fn test_receive(&mut self) -> Result<Option<(u32, usize)>, MpiError> {
        let (mut complete, mut count) = (0, 0);
        let mut status = MaybeUninit::<ffi::MPI_Status>::uninit();
        // SAFETY: a request of ours; the status is read only once MPI has written it.
        unsafe {
            check("MPI_Test", ffi::MPI_Test(&raw mut self.0, &raw mut complete, status.as_mut_ptr()))?;
            if complete == 0 {
                return Ok(None);
            }
            let status = status.assume_init();
            check(
                "MPI_Get_count",
                ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut count),
            )?;
            Ok(Some((status.MPI_SOURCE.unsigned_abs(), count.unsigned_abs() as usize)))
        }
    }

    /// Cancels a receive and waits until it is cancelled or complete.
    fn cancel(&mut self) -> Result<(), MpiError> {
        if self.is_null() {
            return Ok(());
        }
        // SAFETY: a receive of ours; once cancelled, waiting for it is local.
        unsafe {
            check("MPI_Cancel", ffi::MPI_Cancel(&raw mut self.0))?;
            check("MPI_Wait", ffi::MPI_Wait(&raw mut self.0, ffi::RSMPI_STATUS_IGNORE))
        }
    }
}

/// Where a small message is written.
pub(crate) type Memory = Box<[u8; SMALL]>;

/// A receive of any small message.
pub(crate) struct Slot {
    request: Request,
    memory: ManuallyDrop<Memory>,
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self { request: Request::NULL(), memory: ManuallyDrop::new(Box::new([0; SMALL])) }
    }

    /// Begins to receive. The slot must be empty.
    pub(crate) fn post(&mut self, comm: Comm) -> Result<(), MpiError> {
        debug_assert!(self.request.is_null(), "one receive at a time");
        let memory: &mut [u8] = &mut self.memory[..];
        // SAFETY: initialised memory is memory; MPI writes only bytes to it.
        let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len()) };
        // SAFETY: the box keeps its place, and is dropped only when the request is null.
        self.request = unsafe { comm.irecv(memory, None, Channel::Small) }?;
        Ok(())
    }

    /// The sender and the bytes of what has arrived, if something has. Makes progress if not.
    pub(crate) fn test(&mut self) -> Result<Option<(u32, &[u8])>, MpiError> {
        let Some((from, length)) = self.request.test_receive()? else { return Ok(None) };
        Ok(Some((from, self.memory.get(..length).unwrap_or_default())))
    }

    /// Ends the receive.
    pub(crate) fn cancel(&mut self) -> Result<(), MpiError> {
        self.request.cancel()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.request.is_null() {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// A small message on its way out.
pub(crate) struct SmallSend {
    request: Request,
    memory: ManuallyDrop<Memory>,
}

impl SmallSend {
    pub(crate) fn start(comm: Comm, to: u32, memory: Memory, length: usize) -> Result<Self, MpiError> {
        let memory = ManuallyDrop::new(memory);
        // SAFETY: the box keeps its place, and is given back or dropped only when the request is null.
        let request = unsafe { comm.isend(memory.get(..length).unwrap_or(&memory[..]), to, Channel::Small) }?;
        Ok(Self { request, memory })
    }

    /// Whether it is complete, so that the memory can be had back.
    pub(crate) fn test(&mut self) -> Result<bool, MpiError> {
        self.request.test()
    }

    /// The memory of a send that [`test`](Self::test) called complete.
    pub(crate) fn into_memory(self) -> Option<Memory> {
        let mut own = ManuallyDrop::new(self);
        // SAFETY: `own` is not dropped, so the memory is taken once.
        own.request.is_null().then(|| unsafe { ManuallyDrop::take(&mut own.memory) })
    }
}

impl Drop for SmallSend {
    fn drop(&mut self) {
        if self.request.is_null() {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// A long message on its way out, in pieces.
pub(crate) struct BulkSend {
    requests: Vec<Request>,
    payload: ManuallyDrop<Bytes>,
}

impl BulkSend {
    pub(crate) fn start(comm: Comm, to: u32, payload: Bytes, max_piece: usize) -> Result<Self, MpiError> {
        let mut send = Self { requests: Vec::new(), payload: ManuallyDrop::new(payload) };
        for piece in send.payload.chunks(max_piece) {
            // SAFETY: what `Bytes` points to keeps its place, and is dropped only when all requests are null.
            let request = unsafe { comm.isend(piece, to, Channel::Bulk) }?;
            send.requests.push(request);
        }
        Ok(send)
    }

    /// Whether all pieces are complete. They complete in any order, but mostly the first ones first.
    pub(crate) fn test(&mut self) -> Result<bool, MpiError> {
        for request in self.requests.iter_mut().filter(|request| !request.is_null()) {
            if !request.test()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Drop for BulkSend {
    fn drop(&mut self) {
        if self.requests.iter().all(Request::is_null) {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.payload) };
        }
    }
}

/// A long message on its way in, in pieces, appended to a buffer.
pub(crate) struct BulkRecv {
    /// With the length of the piece.
    requests: Vec<(Request, usize)>,
    buffer: ManuallyDrop<Vec<u8>>,
    /// Of the pieces that have arrived.
    arrived: usize,
}

impl BulkRecv {
    /// The buffer must have room for `length` more bytes.
    pub(crate) fn start(
        comm: Comm,
        from: u32,
        buffer: Vec<u8>,
        length: usize,
        max_piece: usize,
    ) -> Result<Self, MpiError> {
        let mut recv = Self { requests: Vec::new(), buffer: ManuallyDrop::new(buffer), arrived: 0 };
        let room = recv.buffer.spare_capacity_mut();
        for piece in room.get_mut(..length).unwrap_or_default().chunks_mut(max_piece) {
            let length = piece.len();
            // SAFETY: the vector is not touched, so its memory keeps its place until all requests are null.
            let request = unsafe { comm.irecv(piece, Some(from), Channel::Bulk) }?;
            recv.requests.push((request, length));
        }
        Ok(recv)
    }

    /// Whether all has arrived. Pieces complete in any order, but mostly the first ones first.
    pub(crate) fn test(&mut self) -> Result<bool, MpiError> {
        for (request, length) in self.requests.iter_mut().filter(|(request, _)| !request.is_null()) {
            let Some((_, arrived)) = request.test_receive()? else { return Ok(false) };
            if arrived != *length {
                let text = format!("{arrived} bytes arrived where {length} were announced");
                return Err(MpiError { call: "MPI_Irecv", code: 0, text });
            }
            self.arrived += arrived;
        }
        Ok(true)
    }

    /// The buffer of a receive that [`test`](Self::test) called complete, with what has arrived.
    pub(crate) fn into_buffer(mut self) -> Vec<u8> {
        let whole = self.requests.iter().map(|(_, length)| length).sum::<usize>() == self.arrived;
        if !whole || !self.is_over() {
            return Vec::new();
        }
        let mut buffer = std::mem::take(&mut *self.buffer);
        // SAFETY: the requests are null, and MPI has written each piece whole, which `test` has checked; so this many
        // bytes of the room that `start` had are written.
        unsafe { buffer.set_len(buffer.len() + self.arrived) };
        buffer
    }

    /// Ends the receive, so that its buffer can be dropped.
    pub(crate) fn cancel(&mut self) -> Result<(), MpiError> {
        self.requests.iter_mut().try_for_each(|(request, _)| request.cancel())
    }

    fn is_over(&self) -> bool {
        self.requests.iter().all(|(request, _)| request.is_null())
    }
}

impl Drop for BulkRecv {
    fn drop(&mut self) {
        if self.is_over() {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}
