//! The view in a terminal: keys and poll results arrive through one channel, and each redraws the screen.

use crate::app::{App, Effect};
use crate::fleet::{Event, Fleet};
use crate::lines::{ASCII, UNICODE};
use crate::options::Options;
use crate::view;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode, Clear, ClearType, EnterAlternateScreen};
use ratatui::{DefaultTerminal, Terminal};
use rustix::process::{getpgrp, getsid, kill_current_process_group, Signal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;

/// Shows the view until the user leaves it. Restores the terminal at the end, even after a panic or a signal.
pub fn run(options: &Options) -> io::Result<()> {
    // This comes before the terminal is changed, because a signal that arrives right afterwards must be handled.
    let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGCONT])?;
    let mut terminal = ratatui::try_init()?;
    let outcome = show(options, &mut terminal, signals);
    give_back(&mut terminal);
    match outcome? {
        // The sender sees that the signal ended this process.
        Some(signal) => emulate_default_handler(signal),
        None => Ok(()),
    }
}

/// Returns the signal that ended the view, if one did.
fn show(options: &Options, terminal: &mut DefaultTerminal, mut signals: Signals) -> io::Result<Option<i32>> {
    let (sender, events) = channel();
    let signalled = sender.clone();
    thread::spawn(move || signals.forever().all(|signal| signalled.send(Event::Signal(signal)).is_ok()));
    let keys = sender.clone();
    thread::spawn(move || read_keys(&keys));
    let mut fleet = Fleet::start(options, sender);
    let glyphs = if options.ascii { ASCII } else { UNICODE };
    let mut app = App::new(options.by, options.all, options.read_only, options.color, glyphs);
    app.show(fleet.servers());
    loop {
        terminal.draw(|frame| view::paint(&app, frame.area(), frame.buffer_mut()))?;
        match next(&events, &mut app, &mut fleet) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(Some(SIGTSTP)) => suspend(terminal)?,
            // This also happens after SIGSTOP, which no process can catch.
            ControlFlow::Break(Some(SIGCONT)) => take(terminal)?,
            ControlFlow::Break(signal) => return Ok(signal),
        }
    }
}

/// Restores the terminal.
fn give_back(terminal: &mut DefaultTerminal) {
    ratatui::restore();
    let _ = terminal.show_cursor();
}

/// Takes the terminal back, whatever state the shell left it in.
fn take(terminal: &mut DefaultTerminal) -> io::Result<()> {
    disable_raw_mode()?;
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
    // A new one assumes an empty screen. The old one would query the cursor, and the reply arrives like key presses.
    *terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    Ok(())
}

/// Stops, like a shell job, until it is continued.
fn suspend(terminal: &mut DefaultTerminal) -> io::Result<()> {
    if !is_job() {
        return Ok(());
    }
    give_back(terminal);
    emulate_default_handler(SIGTSTP)?;
    take(terminal)
}

/// Whether a shell with job control started it: such a shell gives each job its own process group. Without one, nothing
/// would continue it.
fn is_job() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// Waits for an event, and handles it together with all others that have arrived by then.
fn next(events: &Receiver<Event>, app: &mut App, fleet: &mut Fleet) -> ControlFlow<Option<i32>> {
    let Ok(first) = events.recv() else { return ControlFlow::Break(None) };
    let mut has_poll = false;
    for event in std::iter::once(first).chain(events.try_iter()) {
        let effect = match event {
            Event::Key(key) => app.on_key(key),
            Event::Redraw => None,
            Event::Hangup => return ControlFlow::Break(None),
            Event::Signal(signal) => return ControlFlow::Break(Some(signal)),
            Event::Polled(number, server) => {
                fleet.polled(number, *server);
                has_poll = true;
                None
            }
            Event::Members(from, members) => {
                fleet.members(from, members);
                has_poll = true;
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
        if let Some(effect) = effect {
            carry_out(effect, app, fleet)?;
        }
    }
    if has_poll {
        if let Some(effect) = app.show(fleet.servers()) {
            carry_out(effect, app, fleet)?;
        }
    }
    ControlFlow::Continue(())
}

fn carry_out(effect: Effect, app: &mut App, fleet: &mut Fleet) -> ControlFlow<Option<i32>> {
    match effect {
        Effect::Quit => return ControlFlow::Break(None),
        // The whole job stops, including a script that started it; this process gets the signal like any other.
        Effect::Suspend => drop(is_job().then(|| kill_current_process_group(Signal::TSTP))),
        Effect::Select(lock) => fleet.select(lock.as_ref()),
        Effect::Sort(by) => fleet.sort(by),
        Effect::All(all) => fleet.all(all),
        Effect::Act(action) => {
            if !fleet.act(action) {
                app.status = Some("that server is gone: nothing was sent".into());
            }
        }
    }
    ControlFlow::Continue(())
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
