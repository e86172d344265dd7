//! The libraries for GPUs that other measurements stand beside, alone.

use super::Run;
use crate::foreign;
use crate::outcome::Outcome;
use crate::report::Axis;

/// Measures NVSHMEM, NCCL and the copy engine. In a report it runs first, and the measurements
/// after it show its rows.
pub fn references(run: &mut Run<'_>) -> Outcome<()> {
    run.recorder.table("references", "libraries for GPUs, alone", Axis::None, Vec::new(), 100)?;
    foreign::all(run.recorder);
    Ok(())
}
