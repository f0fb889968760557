//! The programs that processes run, and the units in which they run.

use flashsift_events::{
    event::{Action, Event},
    names::{program_name, unescape},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Stands between a program and its unit in the names of processes that are charged.
const IN_UNIT: char = '\u{1f}';

/// Last names by process.
#[derive(Default)]
pub(super) struct Processes {
    programs: HashMap<u32, Box<str>, FixedState>,
    units: HashMap<u32, Box<str>, FixedState>,
    bytes: usize,
}

impl Processes {
    pub(super) fn take(&mut self, event: &Event<'_>) {
        match &event.action {
            Action::Process { name } => {
                let name: &str = name;
                self.bytes += name.len();
                self.programs.insert(event.pid, name.into());
            }
            Action::ControlGroup { path } => {
                if let Some(unit) = unit_of(path) {
                    self.bytes += unit.len();
                    self.units.insert(event.pid, unit.into());
                }
            }
            _ => {}
        }
    }

    /// Returns the name of the program that a process runs now.
    pub(super) fn program_of(&self, pid: u32) -> Box<str> {
        program_name(self.programs.get(&pid).map(|name| &**name).ok_or(pid))
    }

    /// Returns the program of a process together with its unit.
    pub(super) fn charged_of(&self, pid: u32) -> Box<str> {
        let program = self.program_of(pid);
        match self.units.get(&pid) {
            Some(unit) => format!("{program}{IN_UNIT}{unit}").into(),
            None => program,
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.programs.allocation_size() + self.units.allocation_size() + self.bytes
    }
}

/// Takes apart what [`Processes::charged_of`] returns.
pub(super) fn program_and_unit(charged: &str) -> (&str, Option<&str>) {
    charged.split_once(IN_UNIT).map_or((charged, None), |(program, unit)| (program, Some(unit)))
}

/// Before the number or name of a container, in the names of units.
pub(super) const CONTAINER: &str = "container ";

/// Between a user's own service and the user's number, in the names of units.
pub(super) const OF_USER: &str = " of user ";

/// Returns the service or container of a control group. A session, and an application that a
/// desktop started, is neither: its program says more.
fn unit_of(path: &str) -> Option<String> {
    let path = unescape(path);
    // systemd's own escapes.
    let path = String::from_utf8_lossy(&path).replace("\\x2d", "-");
    let parts: Vec<&str> = path.split('/').collect();
    for part in parts.iter().rev() {
        let id = part.trim_end_matches(".scope").rsplit('-').next()?;
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(name) = part.strip_prefix("lxc.payload.").or(is_id.then_some(id)) {
            return Some(format!("{CONTAINER}{name}"));
        }
    }
    let innermost =
        parts.iter().rev().find(|part| part.ends_with(".scope") || part.ends_with(".service"))?;
    let is_service = innermost.ends_with(".service") && !innermost.starts_with("user@");
    let user = parts.iter().find_map(|part| part.strip_prefix("user@")?.strip_suffix(".service"));
    is_service.then(|| match user {
        Some(user) => format!("{innermost}{OF_USER}{user}"),
        None => (*innermost).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_containers_are_units_and_sessions_are_not() {
        let id = "5".repeat(64);
        let unit = |path: &str| unit_of(path);
        let is = |path: &str, name: &str| assert_eq!(unit(path).as_deref(), Some(name), "{path}");
        is("/system.slice/logger.service", "logger.service");
        is(
            "/system.slice/system-postgresql.slice/postgresql@15-main.service",
            "postgresql@15-main.service",
        );
        is(r"/system.slice/home\x2dassistant.service", "home-assistant.service");
        is(
            "/user.slice/user-1000.slice/user@1000.service/app.slice/syncthing.service",
            "syncthing.service of user 1000",
        );
        let container = format!("container {id}");
        is(&format!("/system.slice/docker-{id}.scope"), &container);
        is(&format!("/docker/{id}"), &container);
        is(&format!("/machine.slice/libpod-{id}.scope/container"), &container);
        is("/lxc.payload.web/system.slice/nginx.service", "container web");
        for path in [
            "/",
            "/user.slice/user-1000.slice/session-3.scope",
            "/user.slice/user-1000.slice/user@1000.service/init.scope",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-chromium-99.scope",
        ] {
            assert_eq!(unit(path), None, "{path}");
        }
    }
}
