//! Time on the GPU's own clock.

use super::error::from_cust;
use super::{Result, Stream};
use cust::event::{Event, EventFlags};

/// Two marks on a stream and the time between them.
#[derive(Debug)]
pub struct Timer {
    start: Event,
    stop: Event,
}

impl Timer {
    /// A timer that has not run.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn new() -> Result<Self> {
        let event = || Event::new(EventFlags::DEFAULT).map_err(from_cust("cuEventCreate"));
        Ok(Self {
            start: event()?,
            stop: event()?,
        })
    }

    /// Seconds that the work took which `work` puts on `stream`, after waiting for it. Resolution about 0.5 µs.
    ///
    /// # Errors
    /// `work`'s own, or whatever its launches ran into.
    pub fn time(&self, stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        self.start.record(stream.cust()).map_err(from_cust("cuEventRecord"))?;
        work()?;
        self.stop.record(stream.cust()).map_err(from_cust("cuEventRecord"))?;
        stream.synchronize()?;
        let milliseconds = self
            .stop
            .elapsed_time_f32(&self.start)
            .map_err(from_cust("cuEventElapsedTime"))?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}
