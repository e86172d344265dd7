//! A network card in memory.
