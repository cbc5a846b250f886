//! Plain numbers, rounded to nearest even.

/// Writes each value in `N` bytes.
pub(super) fn numbers<const N: usize>(values: &[f32], out: &mut [u8], write: impl Fn(f32) -> [u8; N]) {
    let (chunks, _) = out.as_chunks_mut::<N>();
    for (chunk, &value) in chunks.iter_mut().zip(values) {
        *chunk = write(value);
    }
}
