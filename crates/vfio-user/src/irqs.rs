//! SET_IRQS: where interrupts go (`struct vfio_irq_set`).

use crate::bytes::{Malformed, Put, Reader};

const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 1 << 1;
const DATA_EVENTFD: u32 = 1 << 2;
const ACTION_MASK: u32 = 1 << 3;
const ACTION_UNMASK: u32 = 1 << 4;
const ACTION_TRIGGER: u32 = 1 << 5;

/// What is to be done with interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Hold them back.
    Mask,
    /// Let them through.
    Unmask,
    /// Set where they go, or let one happen.
    Trigger,
}

/// For which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// For all in the range; no interrupts at all if the range is empty.
    None,
    /// For those whose byte is not zero.
    Bools(&'a [u8]),
    /// Each has a descriptor, or, where the message has none at all, none has.
    Eventfds,
}

/// A SET_IRQS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// Which kind of interrupts ([`crate::irq`]).
    pub index: u32,
    /// The first of them.
    pub start: u32,
    /// How many.
    pub count: u32,
    /// What is done with them.
    pub action: IrqAction,
    /// For which.
    pub data: IrqData<'a>,
}

impl<'a> SetIrqs<'a> {
    pub(crate) fn read(mut reader: Reader<'a>) -> Result<SetIrqs<'a>, Malformed> {
        let _argsz = reader.u32()?;
        let (flags, index, start, count) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let bytes = reader.rest();
        let bad = Malformed::Field { what: "flags of SET_IRQS", value: flags.into() };
        let action = match flags & !(DATA_NONE | DATA_BOOL | DATA_EVENTFD) {
            ACTION_MASK => IrqAction::Mask,
            ACTION_UNMASK => IrqAction::Unmask,
            ACTION_TRIGGER => IrqAction::Trigger,
            _ => return Err(bad),
        };
        if start.checked_add(count).is_none() {
            return Err(Malformed::Field { what: "count of SET_IRQS", value: count.into() });
        }
        let data = match flags & (DATA_NONE | DATA_BOOL | DATA_EVENTFD) {
            DATA_NONE => IrqData::None,
            DATA_BOOL => {
                let bools = bytes.get(..count as usize).ok_or(Malformed::Short { what: "data of SET_IRQS", len: bytes.len() })?;
                IrqData::Bools(bools)
            }
            DATA_EVENTFD => IrqData::Eventfds,
            _ => return Err(bad),
        };
        Ok(SetIrqs { index, start, count, action, data })
    }

    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        let action = match self.action {
            IrqAction::Mask => ACTION_MASK,
            IrqAction::Unmask => ACTION_UNMASK,
            IrqAction::Trigger => ACTION_TRIGGER,
        };
        let (flag, data): (u32, &[u8]) = match self.data {
            IrqData::None => (DATA_NONE, &[]),
            IrqData::Bools(bools) => (DATA_BOOL, bools),
            IrqData::Eventfds => (DATA_EVENTFD, &[]),
        };
        bytes.u32(20 + data.len() as u32).u32(action | flag).u32(self.index).u32(self.start).u32(self.count);
        bytes.extend(data);
    }
}
