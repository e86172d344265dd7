//! Poll groups: what the device does with what the proxy says, whatever it says.

mod changes;
mod hostile;
mod leaving;
mod model;
mod proxy;
mod sharing;
