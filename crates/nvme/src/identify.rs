//! Identify data structures: 4096 bytes each (Base 5.1.13.2, NVM 4.1.5).

mod controller;
mod lists;
mod namespace;
mod parts;

pub use controller::{Controller, MultiPath, VolatileCache};
pub use lists::{Descriptor, DescriptorList, NamespaceList, descriptor};
pub use namespace::{ExtendedFormat, IndependentNamespace, LbaFormat, Namespace, NvmController, NvmNamespace};
pub use parts::{Fabrics, PowerState};

#[cfg(test)]
mod tests;
