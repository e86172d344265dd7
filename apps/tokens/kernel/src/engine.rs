//! The loop of the model's block: requests join, a step, tokens leave.

use crate::batch::Run;
use crate::shared::{Shared, Tokens};
use gpunet_device::{Error, Group, Result};
use gpunet_serve::{Bell, Line, Service, Worker};

/// Serves requests until the server ends.
///
/// # Cooperation
/// All lanes of the model's block.
///
/// # Errors
/// The launch is over.
pub(crate) fn run<G: Group, S: Service<Shared = Shared>>(
    settings: &Tokens,
    g: &G,
    worker: &mut Worker<'_, S>,
) -> Result<()> {
    let shared = worker.shared;
    let model = shared.batch.model(settings.weights, worker.data).ok_or(Error::InvalidArgument)?;
    let (slots, metrics, bells) = (shared.slots, shared.metrics, worker.bells);
    let run = Run { batch: &shared.batch, slots, model, metrics, bells };
    let (mut active, mut step_at) = (0, 0);
    loop {
        // A request that found no place has rung already: it is looked for.
        let is_idle = active == 0 && shared.requests.is_empty(g);
        if !worker.wait(g, if is_idle { u64::MAX } else { step_at })? {
            return Ok(());
        }
        let context = worker.context;
        while active < shared.batch.sequences() {
            let Some([bell, number]) = shared.requests.pop(g, &context)? else { break };
            active += usize::from(run.join(g, Bell::from_raw(bell), number as u32));
        }
        if active > 0 && context.now >= step_at {
            step_at = context.now.saturating_add(settings.interval_ns);
            match run.step(g, active) {
                Ok(ended) => active -= ended,
                Err(error) => {
                    let line = Line::new().text(b"the model has refused a step: StepError ");
                    worker.log.line(g, context.now, &line.number(error as i64));
                    active = 0;
                }
            }
        }
        shared.batch.set_running(g, active);
    }
}
