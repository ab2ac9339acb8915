//! The view in a terminal: keys and looks come in over one channel, and each redraws the screen.

use crate::app::{App, Effect};
use crate::fleet::{Event, Fleet};
use crate::lines::{ASCII, UNICODE};
use crate::options::Options;
use crate::view;
use ratatui::crossterm::event::{self, KeyEventKind};
use ratatui::DefaultTerminal;
use std::io;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;

/// Shows the view until somebody leaves it. The terminal is as before afterwards, also after a panic.
pub fn run(options: &Options) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let outcome = show(options, &mut terminal);
    ratatui::restore();
    outcome
}

fn show(options: &Options, terminal: &mut DefaultTerminal) -> io::Result<()> {
    let (sender, events) = channel();
    let keys = sender.clone();
    thread::spawn(move || read_keys(&keys));
    let mut fleet = Fleet::start(options, sender);
    let glyphs = if options.ascii { ASCII } else { UNICODE };
    let mut app = App::new(options.by, options.all, options.read_only, options.color, glyphs);
    app.show(fleet.servers());
    loop {
        terminal.draw(|frame| view::paint(&app, frame.area(), frame.buffer_mut()))?;
        if !next(&events, &mut app, &mut fleet) {
            return Ok(());
        }
    }
}

/// Waits for something to happen, and carries it out with all that has happened by then; false to leave.
fn next(events: &Receiver<Event>, app: &mut App, fleet: &mut Fleet) -> bool {
    let Ok(first) = events.recv() else { return false };
    let mut has_look = false;
    for event in std::iter::once(first).chain(events.try_iter()) {
        let effect = match event {
            Event::Key(key) => app.on_key(key),
            Event::Redraw => None,
            Event::Hangup => return false,
            Event::Look(number, server) => {
                fleet.look(number, *server);
                has_look = true;
                None
            }
            Event::Members(from, members) => {
                fleet.members(from, members);
                has_look = true;
                None
            }
            Event::Sentinels(trouble) => {
                app.sentinels = trouble;
                None
            }
            Event::Outcome(outcome) => {
                app.status = Some(outcome);
                None
            }
        };
        if effect.is_some_and(|effect| !carry_out(effect, app, fleet)) {
            return false;
        }
    }
    if has_look {
        if let Some(effect) = app.show(fleet.servers()) {
            return carry_out(effect, app, fleet);
        }
    }
    true
}

fn carry_out(effect: Effect, app: &mut App, fleet: &mut Fleet) -> bool {
    match effect {
        Effect::Quit => return false,
        Effect::Select(lock) => fleet.select(lock.as_ref()),
        Effect::Sort(by) => fleet.sort(by),
        Effect::All(all) => fleet.all(all),
        Effect::Act(action) => {
            if !fleet.act(action) {
                app.status = Some("that server is gone: nothing was sent".into());
            }
        }
    }
    true
}

fn read_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => Event::Key(key),
            Ok(event::Event::Resize(..)) => Event::Redraw,
            Ok(_) => continue,
            Err(_) => Event::Hangup,
        };
        let is_end = matches!(event, Event::Hangup);
        if events.send(event).is_err() || is_end {
            return;
        }
    }
}
