//! Orders to a device that is served.

use emu::ControlCommand;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<ControlCommand>() {
        Ok(ControlCommand::Fault(change)) => {
            let written = format!("fault {change}").parse();
            assert_eq!(written, Ok(ControlCommand::Fault(change)), "what it writes reads otherwise");
        }
        Ok(ControlCommand::Status) => assert_eq!(text.trim(), "status"),
        Err(error) => assert_eq!(error.line, 1),
    }
}
