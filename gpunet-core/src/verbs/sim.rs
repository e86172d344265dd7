//! A network card in memory.
/// stub
#[derive(Clone, Debug)]
pub struct Fabric;
impl Fabric {
    /// stub
    pub fn verbs(&self) -> Box<dyn super::Verbs> { unimplemented!() }
}
