//! What a step computes: rows, divided into tiles for the blocks of the GPU.

/// The most rows of a tile, as in `model.cu`: of a prompt, so many tokens pass in a step.
pub const TILE_ROWS: usize = 64;
/// Rows that a block computes at a time.
const BLOCK_ROWS: usize = 8;

/// A token to compute, as `model.cu` reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Row {
    pub sequence: u32,
    pub position: u32,
    pub token: u32,
    pub temperature: f32,
    pub seed: u64,
    pub reserved: u64,
}

/// The rows of a block, as `model.cu` reads them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tile {
    pub first: u32,
    pub rows: u32,
}

// SAFETY: numbers in the layout of C, which the kernel reads; no bits of them are wrong.
unsafe impl cudarc::driver::DeviceRepr for Row {}
// SAFETY: as above.
unsafe impl cudarc::driver::DeviceRepr for Tile {}
// SAFETY: as above.
unsafe impl cudarc::driver::ValidAsZeroBits for Row {}
// SAFETY: as above.
unsafe impl cudarc::driver::ValidAsZeroBits for Tile {}

/// A step. Rows of prompts have a tile for each sequence; the others share tiles if they are more
/// than blocks run at a time.
#[derive(Debug, Default)]
pub struct Plan {
    rows: Vec<Row>,
    tiles: Vec<Tile>,
    /// How many rows after the prompts' have been divided, and into how many tiles they go.
    single: usize,
}

impl Plan {
    /// Empties the plan.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.tiles.clear();
        self.single = 0;
    }

    /// Adds rows of one prompt, at most [`TILE_ROWS`], before any single row. Returns the number
    /// of the last one.
    pub fn prompt(&mut self, rows: impl Iterator<Item = Row>) -> usize {
        let first = self.rows.len();
        self.rows.extend(rows);
        self.tiles.push(Tile { first: first as u32, rows: (self.rows.len() - first) as u32 });
        self.rows.len() - 1
    }

    /// Adds the row of a sequence that has one. Returns its number.
    pub fn single(&mut self, row: Row) -> usize {
        self.rows.push(row);
        self.single += 1;
        self.rows.len() - 1
    }

    /// Divides the single rows among `blocks` blocks.
    pub fn divide(&mut self, blocks: usize) {
        let height = self.single.div_ceil(blocks.max(1)).clamp(1, BLOCK_ROWS);
        let mut first = self.rows.len() - self.single;
        while first < self.rows.len() {
            let rows = height.min(self.rows.len() - first);
            self.tiles.push(Tile { first: first as u32, rows: rows as u32 });
            first += rows;
        }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(prompts: &[usize], singles: usize, blocks: usize) -> Plan {
        let mut plan = Plan::default();
        for rows in prompts {
            plan.prompt((0..*rows).map(|_| Row::default()));
        }
        for _ in 0..singles {
            plan.single(Row::default());
        }
        plan.divide(blocks);
        plan
    }

    #[test]
    fn each_row_is_in_one_tile() {
        for (prompts, singles, blocks) in
            [(&[3, 64][..], 5, 4), (&[], 300, 132), (&[1], 0, 132), (&[], 2000, 132)]
        {
            let plan = plan(prompts, singles, blocks);
            let mut next = 0;
            for tile in plan.tiles() {
                assert_eq!(tile.first, next);
                assert!(tile.rows > 0 && tile.rows as usize <= TILE_ROWS);
                next += tile.rows;
            }
            assert_eq!(next as usize, plan.rows().len());
        }
    }

    #[test]
    fn single_rows_share_blocks_only_if_they_must() {
        assert_eq!(plan(&[], 132, 132).tiles().len(), 132);
        assert_eq!(plan(&[], 256, 132).tiles().len(), 128);
        assert_eq!(plan(&[10], 1, 132).tiles(), [Tile { first: 0, rows: 10 }, Tile { first: 10, rows: 1 }]);
    }
}
