//! `jacobi`: Laplace's equation with an exchange of boundary rows.

use super::check;
use crate::error::Error;
use crate::member::Member;
use gpunet_symmetric_kernel::Jacobi;

/// Cells of a row, with the fixed ones at both ends.
const WIDTH: usize = 66;
/// The last cell of a row.
const LAST: usize = WIDTH - 1;
const ITERATIONS: u64 = 100;
/// Iterations from one check to the next.
const EVERY: u32 = 10;
/// Grids of a few rows settle before the last iteration, larger ones do not.
const TOLERANCE: f32 = 1e-3;

pub(super) fn run(member: &Member, elements: usize) -> Result<(), Error> {
    let (rank, size, blocks) =
        (member.team.rank().0 as usize, member.team.size() as usize, member.blocks as usize);
    let rows = (elements / blocks / WIDTH).max(1);
    let mut expected = Grid::new(rows * blocks * size + 2);
    // This member's bands in order, each with the row above and the row below.
    let bands = |grid: &Grid| -> Vec<f32> {
        let band = |block| grid.rows((rank * blocks + block) * rows, rows + 2).to_vec();
        (0..blocks).flat_map(band).collect()
    };
    let alloc = || member.team.alloc::<f32>(blocks * (rows + 2) * WIDTH);
    let mut copies = [alloc()?, alloc()?];
    for copy in &mut copies {
        copy.write(0, &bands(&expected))?;
    }
    let counts = [member.team.alloc::<u64>(blocks)?, member.team.alloc(2)?, member.team.alloc(1)?];
    member.run(member.blocks, &(&copies, &counts), |team, results, (copies, counts)| {
        let [first, second] = copies.each_ref().map(|part| member.ptr(part));
        let [changing, total, done] = counts.each_ref().map(|part| member.ptr(part));
        let (width, iterations, every, tolerance) = (WIDTH as u64, ITERATIONS, EVERY, TOLERANCE);
        Jacobi { team, first, second, changing, total, done, results, width, iterations, every, tolerance }
    })?;
    let iterations = expected.solve();
    check("the iterations", &counts[2], |_| iterations)?;
    let (result, expected) = (&copies[iterations as usize % 2], bands(&expected));
    // Every sum adds the same numbers in the same order, so every bit is the same.
    check("the grid", result, |at| expected[at])
}

/// The whole grid, for the plain computation that the result is compared with.
struct Grid(Vec<f32>);

impl Grid {
    /// Makes a grid with `rows` rows. The first and the last one are fixed.
    fn new(rows: usize) -> Self {
        // Numbers that look random, so that a wrong neighbour shows everywhere.
        let cell = |at: usize| (at * 7919 % 1000) as f32 / 1000.0;
        Self((0..rows * WIDTH).map(cell).collect())
    }

    fn rows(&self, first: usize, count: usize) -> &[f32] {
        &self.0[first * WIDTH..(first + count) * WIDTH]
    }

    /// Computes the same as the kernel. Returns the number of iterations.
    fn solve(&mut self) -> u64 {
        let mut iteration = 0;
        loop {
            iteration += 1;
            let changing = self.relax();
            if iteration == ITERATIONS || (iteration % u64::from(EVERY) == 0 && changing == 0) {
                return iteration;
            }
        }
    }

    fn relax(&mut self) -> usize {
        let (old, mut changing) = (self.0.clone(), 0);
        let inner = |at: &usize| !matches!(at % WIDTH, 0 | LAST);
        for at in (WIDTH..old.len() - WIDTH).filter(inner) {
            let mean = (old[at - WIDTH] + old[at + WIDTH] + (old[at - 1] + old[at + 1])) * 0.25;
            changing += usize::from((mean - old[at]).abs() > TOLERANCE);
            self.0[at] = mean;
        }
        changing
    }
}
