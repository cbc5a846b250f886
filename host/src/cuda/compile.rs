//! PTX to machine code, by the compiler inside the driver.

use super::{Error, Result};
use cuda_link::Status;
use cuda_link::api::{self, jit_option};
use std::ffi::c_void;

/// Machine code (a cubin) for the current context's GPU. `arch` only names the module in errors.
///
/// # Errors
/// [`Error::Compile`] with the compiler's first complaint.
pub fn to_cubin(ptx: &str, arch: &'static str) -> Result<Vec<u8>> {
    let mut log = vec![0u8; 8192];
    let mut options = [jit_option::ERROR_LOG, jit_option::ERROR_LOG_BYTES];
    // The driver takes a number in place of a pointer for the second option.
    let mut values = [
        log.as_mut_ptr().cast::<c_void>(),
        std::ptr::without_provenance_mut(log.len()),
    ];
    let mut state = std::ptr::null_mut();
    // SAFETY: options and values have two entries, and both they and the log outlive the state, which this function
    // destroys.
    unsafe { api::cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &mut state) }.check("cuLinkCreate")?;
    let cubin = link(state, ptx);
    // SAFETY: created above, destroyed once.
    let _ = unsafe { api::cuLinkDestroy(state) };
    cubin.map_err(|status| complaint(status, &log, arch))
}

/// Adds the PTX to `state` and takes a copy of the result.
fn link(state: api::LinkState, ptx: &str) -> std::result::Result<Vec<u8>, Status> {
    const PTX: u32 = 1;
    let text = [ptx.as_bytes(), b"\0"].concat();
    let (data, none) = (text.as_ptr().cast_mut().cast(), std::ptr::null_mut());
    // SAFETY: the driver reads the text, zero at its end, during the call only.
    let added =
        unsafe { api::cuLinkAddData_v2(state, PTX, data, text.len(), c"kernels".as_ptr(), 0, none, none.cast()) };
    if added != Status::SUCCESS {
        return Err(added);
    }
    let (mut cubin, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: both pointers are to live places.
    let completed = unsafe { api::cuLinkComplete(state, &mut cubin, &mut bytes) };
    if completed != Status::SUCCESS {
        return Err(completed);
    }
    // SAFETY: the driver keeps that many bytes there until the state is destroyed.
    Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), bytes) }.to_vec())
}

/// The error for a failed compilation: the first line of the compiler's log, or the driver's words.
fn complaint(status: Status, log: &[u8], arch: &'static str) -> Error {
    let log = String::from_utf8_lossy(log);
    let line = log
        .trim_matches('\0')
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty());
    Error::Compile {
        arch,
        log: line.map_or_else(|| status.text(), str::to_owned),
    }
}
