//! A PCI function by VFIO's container, group and device (Linux `Documentation/driver-api/vfio.rst`, `linux/vfio.h`): its registers, its
//! messages, and memory that it reaches through the IOMMU.
//!
//! | question | file |
//! | --- | --- |
//! | what does the kernel answer? | `reply.rs`, pure; how it is asked: `call.rs` |
//! | what keeps a function from being opened, and what mends it? | `error.rs` |
//! | how is it opened? | `open.rs` |
//! | which memory does it reach, and where? | `container.rs` |
//! | how is it told what to do, and how does it tell? | `device.rs` |
//! | where are its registers? | `registers.rs`; of a device that another process serves: `shared.rs` |
//!
//! Whatever ends the process, the kernel closes the descriptors: it resets the function, unmaps and unpins.

mod call;
mod container;
mod device;
mod error;
mod open;
mod registers;
pub mod reply;
mod shared;

pub use container::Container;
pub use device::PciDevice;
pub use error::VfioError;
pub use open::open;
pub use registers::{PciRegisters, RegisterCalls};
pub use shared::SharedArea;
