//! `thread-group`: a gather by a block, by a warp, by a thread.

use super::check;
use crate::error::Error;
use crate::member::Member;
use gpunet_symmetric_kernel::{Gatherer, ThreadGroup};

/// Threads of a block on the CPU: more than a warp has.
const CPU_THREADS: u32 = 40;

pub(super) fn run(member: &Member, elements: usize) -> Result<(), Error> {
    let (rank, size) = (member.team.rank().0 as usize, member.team.size() as usize);
    let each = (elements / size).max(1);
    let (x, y) = (|at: usize| at as i32, |at: usize| 1_000_000 - 3 * at as i32);
    let alloc = |len| member.team.alloc::<i32>(len);
    let mut memory = [alloc(each)?, alloc(each)?, alloc(each)?, alloc(each * size)?];
    let own = rank * each..(rank + 1) * each;
    memory[0].write(0, &own.clone().map(x).collect::<Vec<_>>())?;
    memory[1].write(0, &own.map(y).collect::<Vec<_>>())?;
    for (gatherer, what) in [
        (Gatherer::Block, "the sum by blocks"),
        (Gatherer::Warp, "the sum by warps"),
        (Gatherer::Thread, "the sum by threads"),
    ] {
        // No member keeps results of the previous gather.
        memory[3].write(0, &vec![-1; each * size])?;
        member.team.barrier()?;
        member.run_blocks(1, member.threads_or(CPU_THREADS), &memory, |team, results, memory| {
            let [x, y, partial, sum] = memory.each_ref().map(|part| member.ptr(part));
            ThreadGroup { team, x, y, partial, sum, results, gatherer: gatherer as u64 }
        })?;
        check(what, &memory[3], |at| x(at) + y(at))?;
    }
    Ok(())
}
