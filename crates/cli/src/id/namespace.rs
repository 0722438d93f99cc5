//! Identify Namespace, as `nvme id-ns` prints it.

use nvme::identify::{LbaFormat, Namespace};
use serde_json::{Value, json};

use super::fields::{Fields, Shown, digits};

/// NSFEAT bits 4 and 5: NPWG to NOWS are set, all of them or all but NPDG (NVM 4.1.5.1, OPTPERF).
const OPTIMAL: u8 = 0x30;
const OPTIMAL_DEALLOCATE: u8 = 0x10;

/// Its fields in the order of nvme-cli.
pub fn fields(ns: &Namespace) -> Fields {
    let mut fields = Fields::default();
    sizes(ns, &mut fields);
    identity(ns, &mut fields);
    let in_use = ns.format_index();
    // Both counts are the controller's word, and there are 64 places; as in nvme-cli, scripts are shown those of NLBAF.
    let formats = || ns.lbaf.iter().enumerate().take(usize::from(ns.nlbaf) + 1 + usize::from(ns.nulbaf));
    let listed = formats().take(usize::from(ns.nlbaf) + 1).map(|(n, format)| self::format(n, *format, n == in_use));
    fields.push("lbafs", Shown::List(listed.collect()));
    fields.push("lbaf", Shown::Lines(formats().map(|(n, format)| format_line(n, *format, n == in_use)).collect()));
    fields
}

fn sizes(ns: &Namespace, fields: &mut Fields) {
    fields.hex("nsze", ns.nsze);
    fields.hex("ncap", ns.ncap);
    fields.hex("nuse", ns.nuse);
    fields.hex("nsfeat", ns.nsfeat);
    fields.dec("nlbaf", ns.nlbaf);
    fields.hex("flbas", ns.flbas);
    fields.hex("mc", ns.mc);
    fields.hex("dpc", ns.dpc);
    fields.hex("dps", ns.dps);
    fields.hex("nmic", ns.nmic);
    fields.hex("rescap", ns.rescap);
    fields.hex("fpi", ns.fpi);
    fields.dec("dlfeat", ns.dlfeat);
    fields.dec("nawun", ns.nawun);
    fields.dec("nawupf", ns.nawupf);
    fields.dec("nacwu", ns.nacwu);
    fields.dec("nabsn", ns.nabsn);
    fields.dec("nabo", ns.nabo);
    fields.dec("nabspf", ns.nabspf);
    fields.dec("noiob", ns.noiob);
    fields.dec("nvmcap", ns.nvmcap.get());
    if ns.nsfeat & OPTIMAL != 0 {
        fields.dec("npwg", ns.npwg);
        fields.dec("npwa", ns.npwa);
        if ns.nsfeat & OPTIMAL_DEALLOCATE != 0 {
            fields.dec("npdg", ns.npdg);
        }
        fields.dec("npda", ns.npda);
        fields.dec("nows", ns.nows);
    }
}

fn identity(ns: &Namespace, fields: &mut Fields) {
    fields.dec("mssrl", ns.mssrl);
    fields.dec("mcl", ns.mcl);
    fields.dec("msrc", ns.msrc);
    fields.dec("kpios", ns.kpios);
    fields.dec("nulbaf", ns.nulbaf);
    fields.dec("kpiodaag", ns.kpiodaag);
    fields.dec("anagrpid", ns.anagrpid);
    fields.dec("nsattr", ns.nsattr);
    fields.dec("nvmsetid", ns.nvmsetid);
    fields.dec("endgid", ns.endgid);
    fields.text("nguid", digits(&ns.nguid));
    fields.text("eui64", digits(&ns.eui64));
}

fn format(n: usize, format: LbaFormat, in_use: bool) -> Value {
    json!({ "lbaf": n, "ms": format.ms(), "ds": format.lbads(), "rp": format.rp(), "in_use": u8::from(in_use) })
}

fn format_line(n: usize, format: LbaFormat, in_use: bool) -> String {
    let mark = if in_use { "(in use)" } else { "" };
    format!("lbaf {n:2} : ms:{:<3} lbads:{:<2} rp:{} {mark}\n", format.ms(), format.lbads(), hex(format.rp()))
}

/// As printf's `%#x`.
fn hex(n: u8) -> String {
    if n == 0 { "0".to_owned() } else { format!("{n:#x}") }
}
