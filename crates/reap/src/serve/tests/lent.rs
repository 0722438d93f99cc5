//! Memory that a client lends by messages, honestly or not.

use vfio_user::{
    DmaRequest, Flags, Header, IrqAction, IrqData, RegionAccess, Request, SetIrqs, irq, region,
};

/// Bytes of guest memory that is handed over, from address 0 on.
pub(super) const RAM: u64 = 0x20_0000;
/// Bytes of it, from address [`RAM`] on.
pub(super) const LENT: u64 = 0x4_0000;

/// How a client answers what it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Manner {
    Honest,
    #[default]
    Refuses,
    Never,
    /// The answer has a byte too few.
    Short,
    /// It has some too many.
    Long,
    /// It is about another place.
    Elsewhere,
    /// As QEMU 11 answers.
    Qemu,
    /// It has the identifier of another message.
    OtherId,
    /// It has another command's number.
    OtherCommand,
    /// Requests go before it.
    Busy,
    /// This many requests come, and no answer.
    Flood,
    /// The answer is longer than any message may be.
    Huge,
}

pub(super) struct Lent {
    pub(super) bytes: Vec<u8>,
    pub(super) manner: Manner,
    /// Messages so far, and the most bytes that one was about.
    pub(super) asked: u64,
    pub(super) most: u64,
    /// An honest answer to the last one.
    pub(super) answer: Vec<u8>,
}

impl Default for Lent {
    fn default() -> Lent {
        Lent {
            bytes: vec![0; LENT as usize],
            manner: Manner::default(),
            asked: 0,
            most: 0,
            answer: Vec::new(),
        }
    }
}

impl Lent {
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes[(at - RAM) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn get(&self, at: u64, len: usize) -> &[u8] {
        &self.bytes[(at - RAM) as usize..][..len]
    }

    /// What is sent in answer to a request, message by message.
    pub(super) fn hear(&mut self, header: &Header, body: &[u8]) -> Vec<Vec<u8>> {
        let ask = DmaRequest::from_message(header, body, 1 << 20)
            .expect("well formed")
            .expect("a request for memory");
        let (address, count) = ask.range();
        (self.asked, self.most) = (self.asked + 1, self.most.max(count));
        let refusal = Header { flags: Flags::ERROR, error: 14, ..*header }.with_body(&[]);
        if self.manner == Manner::Refuses {
            return vec![refusal];
        }
        let data = match ask {
            DmaRequest::Read { .. } => self.get(address, count as usize).to_vec(),
            DmaRequest::Write { data, .. } => {
                // Where QEMU looks for it.
                let data = if self.manner == Manner::Qemu {
                    [&[0; 4], data].concat()[..data.len()].to_vec()
                } else {
                    data.to_vec()
                };
                self.put(address, &data);
                Vec::new()
            }
        };
        let honest = ask.reply(header, &data);
        self.answer = honest.clone();
        let with = |header: Header, body: &[u8]| {
            vec![Header { flags: Flags::REPLY, ..header }.with_body(body)]
        };
        match self.manner {
            Manner::Honest | Manner::Refuses => vec![honest],
            Manner::Never => Vec::new(),
            Manner::Short => with(*header, &honest[16..honest.len() - 1]),
            Manner::Long => with(*header, &[&honest[16..], &[0; 3]].concat()),
            Manner::Elsewhere => {
                with(*header, &[&(address + 1).to_ne_bytes(), &honest[24..]].concat())
            }
            Manner::Qemu if data.is_empty() => with(*header, &[]),
            Manner::Qemu => with(*header, &[&honest[16..28], &data, &[0; 4]].concat()),
            Manner::OtherId => {
                with(Header { id: header.id.wrapping_add(1), ..*header }, &honest[16..])
            }
            Manner::OtherCommand => {
                with(Header { command: header.command ^ 7, ..*header }, &honest[16..])
            }
            Manner::Busy => {
                (0..300).map(|n| table_write(n, 4)).chain([try_vector(), honest]).collect()
            }
            Manner::Flood => (0..40).map(|n| table_write(n, 0x8000)).collect(),
            Manner::Huge => with(*header, &vec![0; 0x2_0000]),
        }
    }
}

/// A message of vector 1, to be tried without an answer.
fn try_vector() -> Vec<u8> {
    let set = SetIrqs {
        index: irq::MSIX,
        start: 1,
        count: 1,
        action: IrqAction::Trigger,
        data: IrqData::None,
    };
    Request::SetIrqs(set).to_bytes(8, Flags::NO_REPLY)
}

/// A write to the MSI-X table that is not answered: its first word is then this.
fn table_write(value: u32, count: u32) -> Vec<u8> {
    let mut data = vec![0; count as usize];
    data[..4].copy_from_slice(&value.to_le_bytes());
    Request::RegionWrite(RegionAccess { offset: 0, region: region::BAR4, count }, &data)
        .to_bytes(7, Flags::NO_REPLY)
}
