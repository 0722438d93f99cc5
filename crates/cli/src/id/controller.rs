//! Identify Controller, as `nvme id-ctrl` prints it.

use std::fmt::Write as _;

use nvme::identify::{Controller, PowerState};
use serde_json::{Value, json};

use super::fields::{Fields, Shown, digits, padded};

/// Its fields, those of the Base Specification 2.1, in the order of nvme-cli.
pub fn fields(controller: &Controller) -> Fields {
    let mut fields = Fields::default();
    identity(controller, &mut fields);
    admin(controller, &mut fields);
    nvm(controller, &mut fields);
    let fabrics = &controller.fabrics;
    fields.dec("ioccsz", fabrics.ioccsz);
    fields.dec("iorcsz", fabrics.iorcsz);
    fields.dec("icdoff", fabrics.icdoff);
    fields.hex("fcatt", fabrics.fcatt);
    fields.dec("msdbd", fabrics.msdbd);
    fields.hex("ofcs", fabrics.ofcs);
    // NPSS is the controller's word, and there are 32 places.
    let states = || controller.psd.iter().take(usize::from(controller.npss) + 1);
    fields.push("psds", Shown::List(states().map(state).collect()));
    fields.push("ps", Shown::Lines(states().enumerate().map(state_lines).collect()));
    fields
}

/// Who it is, and what it can tell.
fn identity(c: &Controller, fields: &mut Fields) {
    fields.hex("vid", c.vid);
    fields.hex("ssvid", c.ssvid);
    fields.text("sn", padded(&c.sn.0));
    fields.text("mn", padded(&c.mn.0));
    fields.text("fr", padded(&c.fr.0));
    fields.dec("rab", c.rab);
    let [low, middle, high] = c.ieee;
    fields.push("ieee", Shown::Both(digits(&[high, middle, low]), u64::from(u32::from_le_bytes([low, middle, high, 0]))));
    fields.hex("cmic", c.cmic.into_bits());
    fields.dec("mdts", c.mdts);
    fields.hex("cntlid", c.cntlid);
    fields.hex("ver", c.ver);
    fields.hex("rtd3r", c.rtd3r);
    fields.hex("rtd3e", c.rtd3e);
    fields.hex("oaes", c.oaes);
    fields.hex("ctratt", c.ctratt);
    fields.hex("rrls", c.rrls);
    fields.hex("bpcap", c.bpcap);
    fields.hex("nssl", c.nssl);
    fields.dec("plsi", c.plsi);
    fields.dec("cntrltype", c.cntrltype);
    fields.text("fguid", uuid(&c.fguid));
    for (key, delay) in ["crdt1", "crdt2", "crdt3"].into_iter().zip(c.crdt) {
        fields.dec(key, delay);
    }
    fields.dec("crcap", c.crcap);
    fields.dec("nvmsr", c.nvmsr);
    fields.dec("vwci", c.vwci);
    fields.dec("mec", c.mec);
}

/// Admin commands and what concerns the whole controller.
fn admin(c: &Controller, fields: &mut Fields) {
    fields.hex("oacs", c.oacs);
    fields.dec("acl", c.acl);
    fields.dec("aerl", c.aerl);
    fields.hex("frmw", c.frmw);
    fields.hex("lpa", c.lpa);
    fields.dec("elpe", c.elpe);
    fields.dec("npss", c.npss);
    fields.hex("avscc", c.avscc);
    fields.hex("apsta", c.apsta);
    fields.dec("wctemp", c.wctemp);
    fields.dec("cctemp", c.cctemp);
    fields.dec("mtfa", c.mtfa);
    fields.dec("hmpre", c.hmpre);
    fields.dec("hmmin", c.hmmin);
    fields.dec("tnvmcap", c.tnvmcap.get());
    fields.dec("unvmcap", c.unvmcap.get());
    fields.hex("rpmbs", c.rpmbs);
    fields.dec("edstt", c.edstt);
    fields.dec("dsto", c.dsto);
    fields.dec("fwug", c.fwug);
    fields.dec("kas", c.kas);
    fields.hex("hctma", c.hctma);
    fields.dec("mntmt", c.mntmt);
    fields.dec("mxtmt", c.mxtmt);
    fields.hex("sanicap", c.sanicap);
    fields.dec("hmminds", c.hmminds);
    fields.dec("hmmaxd", c.hmmaxd);
    fields.dec("nsetidmax", c.nsetidmax);
    fields.dec("endgidmax", c.endgidmax);
    fields.dec("anatt", c.anatt);
    fields.dec("anacap", c.anacap);
    fields.dec("anagrpmax", c.anagrpmax);
    fields.dec("nanagrpid", c.nanagrpid);
    fields.dec("pels", c.pels);
    fields.dec("domainid", c.did);
    fields.dec("kpioc", c.kpioc);
    fields.dec("mptfawr", c.mptfawr);
    fields.dec("megcap", c.megcap.get());
    fields.hex("tmpthha", c.tmpthha);
    fields.dec("cqt", c.cqt);
}

/// Queues and I/O commands.
fn nvm(c: &Controller, fields: &mut Fields) {
    fields.hex("sqes", c.sqes);
    fields.hex("cqes", c.cqes);
    fields.dec("maxcmd", c.maxcmd);
    fields.dec("nn", c.nn);
    fields.hex("oncs", c.oncs);
    fields.hex("fuses", c.fuses);
    fields.hex("fna", c.fna);
    fields.hex("vwc", c.vwc.into_bits());
    fields.dec("awun", c.awun);
    fields.dec("awupf", c.awupf);
    fields.dec("icsvscc", c.icsvscc);
    fields.dec("nwpc", c.nwpc);
    fields.dec("acwu", c.acwu);
    fields.hex("ocfs", c.ocfs);
    fields.hex("sgls", c.sgls);
    fields.dec("mnan", c.mnan);
    fields.dec("maxdna", c.maxdna.get());
    fields.dec("maxcna", c.maxcna);
    fields.dec("oaqd", c.oaqd);
    match padded(&c.subnqn.0) {
        // Scripts are told nothing of a name that is not there.
        none if none.is_empty() => fields.push("subnqn", Shown::Lines("subnqn    : \n".to_owned())),
        name => fields.text("subnqn", name),
    }
}

/// `00000000-0000-0000-0000-000000000000`
fn uuid(bytes: &[u8; 16]) -> String {
    let all = digits(bytes);
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| all.get(range).unwrap_or_default()).join("-")
}

fn state(state: &PowerState) -> Value {
    json!({
        "max_power": state.mp,
        "max_power_scale": state.flags & PowerState::MXPS,
        "non-operational_state": u8::from(state.flags & PowerState::NOPS != 0),
        "flags": state.flags,
        "entry_lat": state.enlat,
        "exit_lat": state.exlat,
        "read_tput": state.rrt,
        "read_lat": state.rrl,
        "write_tput": state.rwt,
        "write_lat": state.rwl,
        "idle_power": state.idlp,
        "idle_scale": PowerState::unit(state.ips),
        "active_power": state.actp,
        "active_power_work": state.apws & 7,
        "active_scale": PowerState::unit(state.apws),
        "emerg_power_fail_recover_time": state.epfrt,
        "emerg_power_fail_recover_scale": state.epfr_fqv_ts & 0xf,
        "force_quiesce_vault_time": state.fqvt,
        "force_quiesce_vault_scale": state.epfr_fqv_ts >> 4,
        "emerg_power_fail_vault_time": state.epfvt,
        "emerg_power_fail_vault_scale": state.epfvts & 0xf,
    })
}

fn state_lines((n, state): (usize, &PowerState)) -> String {
    let most = if state.flags & PowerState::MXPS != 0 { power(state.mp, 1) } else { power(state.mp, 2) };
    let non = if state.flags & PowerState::NOPS != 0 { "non-" } else { "" };
    let mut out = format!(
        "ps   {n:4} : mp:{most} {non}operational enlat:{} exlat:{} rrt:{} rrl:{}\n",
        state.enlat, state.exlat, state.rrt, state.rrl
    );
    let (idle, active) = (power(state.idlp, PowerState::unit(state.ips)), power(state.actp, PowerState::unit(state.apws)));
    let workload = match state.apws & 7 {
        0 => "-",
        1 => "1MiB 32 RW, 30s idle",
        2 => "80K 128KiB SW",
        _ => "reserved",
    };
    _ = writeln!(out, "            rwt:{} rwl:{} idle_power:{idle} active_power:{active}", state.rwt, state.rwl);
    _ = writeln!(out, "            active_power_workload:{workload}");
    out
}

/// Watts, of a number in this unit ([`PowerState::unit`]).
fn power(value: u16, unit: u8) -> String {
    match unit {
        0 => "-".to_owned(),
        1 => format!("{}.{:04}W", value / 10_000, value % 10_000),
        2 => format!("{}.{:02}W", value / 100, value % 100),
        _ => "reserved".to_owned(),
    }
}
