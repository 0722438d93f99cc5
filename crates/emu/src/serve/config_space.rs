//! PCI configuration space of an NVMe controller: a type 0 header with the PM, MSI-X and PCI
//! Express capabilities.
//!
//! Layout as in the PCI Express Base Specification, 7.5 and 7.7; class code as in PCIe Transport
//! 2.1.

/// Bytes of the configuration space, extended space included.
pub(super) const CONFIG_BYTES: usize = 4096;
/// Bytes of BAR 4: MSI-X table and Pending Bit Array.
pub(super) const MSIX_BYTES: u32 = 0x1_0000;
/// Offset of the Pending Bit Array in BAR 4.
pub(super) const PENDING_BITS: u32 = 0x8000;

/// An unassigned vendor ID, the letters RE; the device ID is AP.
const VENDOR: u16 = 0x5245;
const DEVICE: u16 = 0x4150;

const COMMAND: usize = 0x04;
const BAR0: usize = 0x10;
const BAR4: usize = 0x20;
const PM: usize = 0x40;
const MSIX: usize = 0x50;
const EXPRESS: usize = 0x60;
const DEVICE_CONTROL: usize = EXPRESS + 8;
/// Device Control, Initiate Function Level Reset, in the second byte.
const RESET: u8 = 0x80;

/// The configuration space: values, and masks of the writable bits.
#[derive(Clone, Debug)]
pub(super) struct ConfigSpace {
    bytes: Box<[u8; CONFIG_BYTES]>,
    writable: Box<[u8; CONFIG_BYTES]>,
}

impl ConfigSpace {
    /// For a function with this many vectors (1 to 2048) and this many bytes of BAR 0 (a power of
    /// two, at least 4096).
    pub(super) fn new(vectors: u16, bar0_bytes: u32) -> ConfigSpace {
        let empty = || Box::new([0; CONFIG_BYTES]);
        let mut space = ConfigSpace { bytes: empty(), writable: empty() };
        space.header(bar0_bytes);
        // Power Management version 3, No_Soft_Reset: internal state survives D3hot.
        space.put16(PM, 0x01 | (MSIX as u16) << 8, 0);
        space.put16(PM + 2, 3, 0);
        space.put16(PM + 4, 1 << 3, 3);
        // MSI-X: table and Pending Bit Array in BAR 4. Enable and Function Mask are writable.
        space.put16(MSIX, 0x11 | (EXPRESS as u16) << 8, 0);
        space.put16(MSIX + 2, vectors - 1, 0xc000);
        space.put32(MSIX + 4, 4, 0);
        space.put32(MSIX + 8, PENDING_BITS | 4, 0);
        // PCI Express version 2, endpoint, with FLR and role-based error reporting; x4 at 8 GT/s.
        space.put16(EXPRESS, 0x10, 0);
        space.put16(EXPRESS + 2, 2, 0);
        space.put32(EXPRESS + 4, 1 << 28 | 1 << 15, 0);
        space.put16(DEVICE_CONTROL, 0, 0x7fff);
        space.put32(EXPRESS + 0xc, 0x43, 0);
        space.put16(EXPRESS + 0x10, 0, 0x01c8);
        space.put16(EXPRESS + 0x12, 0x43, 0);
        space.put16(EXPRESS + 0x28, 0, 0x001f);
        space.put32(EXPRESS + 0x2c, 0xe, 0);
        space
    }

    fn header(&mut self, bar0_bytes: u32) {
        self.put16(0, VENDOR, 0);
        self.put16(2, DEVICE, 0);
        // Command: memory space, bus master, parity, SERR# and INTx disable are writable.
        self.put16(COMMAND, 0, 0x0546);
        // Status: capabilities list.
        self.put16(COMMAND + 2, 0x10, 0);
        // Revision 1; class code of an NVM Express I/O controller.
        self.put32(0x08, 0x0108_0201, 0);
        self.put16(0x0c, 0, 0x00ff);
        // 64-bit memory BARs. Size bits are read-only zero, for sizing by writing ones.
        for (at, bytes) in [(BAR0, bar0_bytes), (BAR4, MSIX_BYTES)] {
            self.put32(at, 4, !(bytes - 1));
            self.put32(at + 4, 0, u32::MAX);
        }
        self.put16(0x2c, VENDOR, 0);
        self.put16(0x2e, DEVICE, 0);
        self.put16(0x34, PM as u16, 0);
        // Interrupt Line is scratch space for software; Interrupt Pin is 0, as INTx is not
        // supported.
        self.put16(0x3c, 0, 0x00ff);
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    /// Reads a range, or returns `None` if it exceeds the space.
    pub(super) fn read(&self, offset: usize, len: usize) -> Option<&[u8]> {
        self.bytes.get(offset..offset.checked_add(len)?)
    }

    /// Writes the writable bits of a range, which must lie in the space. Returns whether a function
    /// level reset was requested.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) -> bool {
        let mut reset = false;
        for (at, new) in (offset..).zip(data) {
            let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) else {
                break;
            };
            *byte = *byte & !mask | new & mask;
            reset |= at == DEVICE_CONTROL + 1 && new & RESET != 0;
        }
        reset
    }
}

#[cfg(test)]
mod tests;
