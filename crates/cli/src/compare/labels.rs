//! Which modes are compared, and in which order.

use anyhow::Result;
use completion::Mode;

use super::contender::Contender;
use crate::args::once;

/// What is compared: the modes, and the first of them once more under another name (A/A).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(Vec<Contender>);

/// The modes unless some are named: so few that a comparison stays under a minute.
pub(super) const USUAL: [Mode; 7] =
    [Mode::INTERRUPT, Mode::INTERRUPT_CHECKED, Mode::IRQ_POLL, Mode::IRQ_POLL_CHECKED, Mode::HYBRID_MEAN, Mode::POLL, Mode::ADAPTIVE];
/// Those of a sweep: one of each family, and more of adaptive's curve over its knob.
pub(super) const SWEPT: [Mode; 6] = [Mode::INTERRUPT, Mode::IRQ_POLL, Mode::HYBRID_MEAN, Mode::SUSPEND, Mode::POLL, Mode::ADAPTIVE];
pub(super) const CURVE: [Contender; 3] = [Contender::adaptive(0), Contender::adaptive(500), Contender::adaptive(2_000)];

impl Labels {
    /// The modes of the command line; if none were named the usual ones, or those of a sweep.
    ///
    /// # Errors
    /// A mode is named twice.
    pub fn new(modes: &[Contender], sweep: bool) -> Result<Labels> {
        let modes: Vec<Contender> = match (modes, sweep) {
            ([], false) => USUAL.map(Contender::plain).to_vec(),
            ([], true) => SWEPT.map(Contender::plain).into_iter().chain(CURVE).collect(),
            (named, _) => named.to_vec(),
        };
        once("--modes", &modes)?;
        Ok(Labels(modes))
    }

    /// Only those for which `stands_for` tells nothing else than one before them does; and the others, each with the mode that it is the
    /// same as.
    pub fn apart(&self, stands_for: impl Fn(Mode) -> Mode) -> (Labels, Vec<(Contender, Contender)>) {
        let (mut kept, mut same) = (Vec::<Contender>::new(), Vec::new());
        for &contender in &self.0 {
            let is = |other: &&Contender| other.price == contender.price && stands_for(other.mode) == stands_for(contender.mode);
            match kept.iter().find(is) {
                Some(&other) => same.push((contender, other)),
                None => kept.push(contender),
            }
        }
        (Labels(kept), same)
    }

    /// Only those that the device does not lack, by what `lacks` says; and of the others why.
    pub fn had(&self, lacks: impl Fn(Mode) -> Option<String>) -> (Labels, Vec<String>) {
        let (mut kept, mut why) = (Vec::new(), Vec::new());
        for &contender in &self.0 {
            match lacks(contender.mode) {
                Some(reason) => why.push(reason),
                None => kept.push(contender),
            }
        }
        (Labels(kept), why)
    }

    /// The modes without the A/A label; never empty.
    pub fn modes(&self) -> &[Contender] {
        &self.0
    }

    /// Whether `mode` is compared.
    pub fn has(&self, mode: Mode) -> bool {
        self.0.iter().any(|contender| contender.mode == mode)
    }

    /// Labels: one more than modes.
    pub fn len(&self) -> usize {
        self.0.len() + 1
    }

    /// The mode of a label.
    pub fn mode(&self, label: usize) -> Contender {
        self.0.get(label).or(self.0.first()).copied().unwrap_or(Contender::plain(Mode::INTERRUPT))
    }

    /// The name of a label.
    pub fn name(&self, label: usize) -> String {
        let again = if label < self.0.len() { "" } else { " (A/A)" };
        format!("{}{again}", self.mode(label))
    }
}
