//! A fixed list of launches, recorded once and replayed with one call.

use super::{Context, Error, Result, Stream};
use cuda_link::api;
use std::sync::Arc;

/// A recorded graph. What its launches point to must outlive it.
#[derive(Debug)]
pub struct Graph {
    exec: api::GraphExec,
    nodes: usize,
    _context: Arc<Context>,
}

impl Graph {
    /// Records what `record` puts on `stream` instead of running it. Nothing else may use the stream meanwhile.
    ///
    /// # Errors
    /// `record`'s own, or a failed driver call; the stream is usable afterwards either way.
    pub fn capture(stream: &Stream, record: impl FnOnce() -> Result<()>) -> Result<Self> {
        // Other threads may go on calling the driver.
        const THREAD_LOCAL: u32 = 1;
        // SAFETY: the stream is live.
        unsafe { api::cuStreamBeginCapture_v2(stream.raw(), THREAD_LOCAL) }.check("cuStreamBeginCapture")?;
        let recorded = record();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is live and the pointer is to a live handle.
        let ended = unsafe { api::cuStreamEndCapture(stream.raw(), &mut graph) };
        let captured = Captured(graph);
        recorded?;
        ended.check("cuStreamEndCapture")?;
        captured.instantiate(stream)
    }

    /// Puts one run of the graph on the stream.
    ///
    /// # Errors
    /// A failed driver call.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are live.
        Ok(unsafe { api::cuGraphLaunch(self.exec, stream.raw()) }.check("cuGraphLaunch")?)
    }

    /// How many launches and copies it has.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated by `capture`, destroyed once; the driver waits for a run in progress.
        let _ = unsafe { api::cuGraphExecDestroy(self.exec) };
    }
}

/// The graph that a capture leaves, destroyed on drop.
struct Captured(api::Graph);

impl Captured {
    fn instantiate(&self, stream: &Stream) -> Result<Graph> {
        let (mut nodes, mut exec) = (0, std::ptr::null_mut());
        // SAFETY: the graph is live; without an array the driver stores the count only.
        unsafe { api::cuGraphGetNodes(self.0, std::ptr::null_mut(), &mut nodes) }.check("cuGraphGetNodes")?;
        // SAFETY: the graph is live and the pointer is to a live handle.
        unsafe { api::cuGraphInstantiateWithFlags(&mut exec, self.0, 0) }.check("cuGraphInstantiate")?;
        let graph = Graph {
            exec,
            nodes,
            _context: Arc::clone(stream.context()),
        };
        // SAFETY: both are live. Uploading now keeps it out of the first run.
        unsafe { api::cuGraphUpload(graph.exec, stream.raw()) }
            .check("cuGraphUpload")
            .map_err(Error::Driver)?;
        Ok(graph)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: left by a capture, destroyed once.
            let _ = unsafe { api::cuGraphDestroy(self.0) };
        }
    }
}
