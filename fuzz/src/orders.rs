//! Orders to a device that is served.

use emu::Order;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Order>() {
        Ok(Order::Fault(change)) => {
            let written = format!("fault {change}").parse();
            assert_eq!(written, Ok(Order::Fault(change)), "what it writes reads otherwise");
        }
        Ok(Order::Status) => assert_eq!(text.trim(), "status"),
        Err(error) => assert_eq!(error.line, 1),
    }
}
