//! The loop of a block of the model: requests join, a step, tokens leave.

use crate::batch::Run;
use crate::shared::{Shared, Tokens};
use gpunet_device::{Error, Group, Result};
use gpunet_serve::{Bell, Line, Service, Worker};

/// Serves requests until the server ends.
///
/// # Cooperation
/// All lanes of a block of the model.
///
/// # Errors
/// The launch is over.
pub(crate) fn run<G: Group, S: Service<Shared = Shared>>(
    settings: &Tokens,
    g: &G,
    worker: &mut Worker<'_, S>,
) -> Result<()> {
    let (shared, bells) = (worker.shared, worker.bells);
    let Shared { slots, metrics, batches, requests, .. } = *shared;
    let batch = batches.at(worker.number() as usize);
    let model = batch.model(settings.weights, worker.data).ok_or(Error::InvalidArgument)?;
    let run = Run { batch: &batch, slots, model, metrics, bells };
    let (mut active, mut step_at, mut is_idle) = (0, 0, false);
    loop {
        // An idle one waits for a request, a busy one for its next step.
        let until = match (active, is_idle) {
            (0, true) => u64::MAX,
            (0, false) => 0,
            _ => step_at,
        };
        if !worker.wait(g, until)? {
            return Ok(());
        }
        let context = worker.context;
        // Its share of those that wait: others that are idle take theirs at the same time.
        let mut share = requests.queue().len(g).div_ceil(batches.models()).max(1);
        while active < batch.sequences() && share > 0 {
            let request =
                if active > 0 { requests.pop(g, &context)? } else { requests.pop_or_idle(g, worker)? };
            is_idle = active == 0 && request.is_none();
            let Some([bell, number]) = request else { break };
            active += usize::from(run.join(g, Bell::from_raw(bell), number as u32));
            share -= 1;
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
            is_idle = false;
        }
        batch.set_running(g, active);
    }
}
