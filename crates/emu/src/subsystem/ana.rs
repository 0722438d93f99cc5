//! Asymmetric Namespace Access states of one controller (Base 8.1.1).

use std::collections::BTreeMap;

use nvme::log::ana::{AnaGroup, AnaLog};
use nvme::{AnaState, Nsid};

use super::script::Change;

/// ANA configuration of a controller. Start from [`Ana::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ana {
    /// ANATT: maximum time in the Change state, in seconds, 1 to 255.
    pub transition_seconds: u8,
    /// Groups, from 1, and their states at power-on. A group that is not listed is Optimized.
    pub groups: BTreeMap<u32, AnaState>,
}

impl Ana {
    /// A single group, number 1, in this state; ANATT is ten seconds.
    pub fn new(state: AnaState) -> Ana {
        Ana { transition_seconds: 10, groups: BTreeMap::from([(1, state)]) }
    }
}

/// Current ANA states.
#[derive(Debug)]
pub(crate) struct AnaStates {
    pub(crate) transition_seconds: u8,
    /// State, and number of changes since the last controller reset.
    groups: BTreeMap<u32, (AnaState, u64)>,
    change_count: u64,
}

impl AnaStates {
    pub(crate) fn new(ana: &Ana) -> AnaStates {
        let groups = ana
            .groups
            .iter()
            .filter(|&(&group, _)| group > 0)
            .map(|(&group, &state)| (group, (state, 0)))
            .collect();
        AnaStates { transition_seconds: ana.transition_seconds.max(1), groups, change_count: 0 }
    }

    /// Adds a group in state Optimized, unless it exists.
    pub(crate) fn include(&mut self, group: u32) {
        self.groups.entry(group).or_insert((AnaState::OPTIMIZED, 0));
    }

    pub(crate) fn state(&self, group: u32) -> Option<AnaState> {
        self.groups.get(&group).map(|&(state, _)| state)
    }

    /// Changes the state of one group, or of all. Returns whether any state has changed.
    pub(crate) fn set(&mut self, group: Option<u32>, state: AnaState) -> bool {
        let meant = self
            .groups
            .iter_mut()
            .filter(|(number, _)| group.is_none_or(|group| group == **number));
        let mut changed = false;
        for (_, (old, count)) in meant.filter(|(_, (old, _))| *old != state) {
            (*old, *count, changed) = (state, *count + 1, true);
        }
        // The count rises once per call, however many groups change.
        self.change_count += u64::from(changed);
        changed
    }

    /// Groups whose state differs from that at power-on, as changes that reproduce it.
    pub(crate) fn changed(&self, at_power_on: Option<&Ana>) -> Vec<Change> {
        let before = |group| {
            at_power_on
                .and_then(|ana| ana.groups.get(group))
                .copied()
                .unwrap_or(AnaState::OPTIMIZED)
        };
        let changed = self.groups.iter().filter(|(group, (state, _))| *state != before(*group));
        // With a single group the change is written without its number.
        let alone = self.groups.len() == 1;
        changed
            .map(|(&group, &(state, _))| Change::Ana { group: (!alone).then_some(group), state })
            .collect()
    }

    /// Controller reset: clears the change counts.
    pub(crate) fn reset(&mut self) {
        self.change_count = 0;
        self.groups.values_mut().for_each(|(_, count)| *count = 0);
    }

    /// NANAGRPID and ANAGRPMAX.
    pub(crate) fn count_and_highest(&self) -> (u32, u32) {
        (self.groups.len() as u32, self.groups.last_key_value().map_or(0, |(&group, _)| group))
    }

    /// The log page. Groups without namespaces are included.
    pub(crate) fn log(&self, namespaces: impl Iterator<Item = (u32, Nsid)>) -> AnaLog {
        let mut members: BTreeMap<u32, Vec<Nsid>> = BTreeMap::new();
        for (group, nsid) in namespaces {
            members.entry(group).or_default().push(nsid);
        }
        let descriptor = |(&group, &(state, change_count)): (&u32, &(AnaState, u64))| {
            let namespaces = members.remove(&group).unwrap_or_default();
            let descriptor = AnaGroup {
                group,
                change_count,
                state: state.0,
                namespaces: namespaces.len() as u32,
                ..AnaGroup::default()
            };
            (descriptor, namespaces)
        };
        AnaLog {
            change_count: self.change_count,
            groups: self.groups.iter().map(descriptor).collect(),
        }
    }
}
