//! Connections to the server in memory. They carry real RESP, so that the package's code for connections is tested too.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{Arg, Cmd, PushKind, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc::UnboundedReceiver;

use super::core::Core;
use super::lock::ConnectionId;
use super::memory::Reply;
use crate::connection::Connection;
use crate::failures::{Call, Failure, said};
use crate::options::Options;
use crate::route::{Dialing, Opens, Server, Servers};

const BUFFER: usize = 64 * 1024;

/// What a manager of this server is built from.
pub(super) fn manager(core: &Arc<Core>, mut options: Options) -> (Servers, Options, Opens) {
    options.clock = core.clock();
    let wire: Arc<dyn Server> = Arc::new(Wire(Arc::clone(core)));
    // An unknown command must not make the locks go on with a script.
    (Servers::in_memory(), options.without_scripts(), Box::new(move |_| Arc::clone(&wire)))
}

/// The application's connections, whose commands do not block.
struct Wire(Arc<Core>);

impl Server for Wire {
    fn call(&self, cmd: Cmd, _: bool, _: Duration) -> Call {
        let core = Arc::clone(&self.0);
        Box::pin(async move {
            core.call(&words_of(&cmd)).map_err(|text| {
                let (code, details) = text.split_once(' ').unwrap_or((&text, ""));
                said(code, Some(details))
            })
        })
    }

    /// Waits use NOTIFY, as if there had been several at a time.
    fn narrow(&self, _: Box<dyn FnOnce() + Send>) -> bool {
        false
    }

    fn widen(&self) {}

    fn dial(&self) -> Option<Dialing> {
        Some(Box::pin(connect(Arc::clone(&self.0))))
    }
}

async fn connect(core: Arc<Core>) -> Result<Arc<Connection>, Failure> {
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let (input, output) = tokio::io::split(ours);
    let (id, replies) = core.accept();
    let (clock, connected) = (core.clock(), Connected { core, id });
    tokio::spawn(clock.followed(carry_out(connected, BufReader::new(input))));
    tokio::spawn(clock.followed(send(output, replies)));
    Connection::over(theirs, clock).await
}

/// A connection, as the server sees it, until this is dropped.
struct Connected {
    core: Arc<Core>,
    id: ConnectionId,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let id = self.id;
        self.core.change(|memory, now| memory.disconnect(id, now));
    }
}

async fn carry_out(connected: Connected, mut input: BufReader<ReadHalf<DuplexStream>>) {
    while let Ok(words) = words(&mut input).await {
        connected.core.command_on(connected.id, &words);
    }
}

async fn send(mut output: WriteHalf<DuplexStream>, mut replies: UnboundedReceiver<Reply>) {
    while let Some(reply) = replies.recv().await {
        let mut bytes = Vec::new();
        match reply {
            Ok(value) => encode(&value, &mut bytes),
            Err(text) => line('-', text, &mut bytes),
        }
        if output.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

pub(super) fn words_of(cmd: &Cmd) -> Vec<Vec<u8>> {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(bytes) => bytes.to_vec(),
        _ => b"0".to_vec(),
    };
    cmd.args_iter().map(word).collect()
}

/// Reads a command: an array of bulk strings.
async fn words(input: &mut BufReader<ReadHalf<DuplexStream>>) -> io::Result<Vec<Vec<u8>>> {
    let count = length(input, '*').await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; length(input, '$').await?];
        input.read_exact(&mut word).await?;
        input.read_exact(&mut [0; 2]).await?;
        words.push(word);
    }
    Ok(words)
}

async fn length(input: &mut BufReader<ReadHalf<DuplexStream>>, kind: char) -> io::Result<usize> {
    let mut line = String::new();
    input.read_line(&mut line).await?;
    let length = line.strip_prefix(kind).and_then(|rest| rest.trim_end().parse().ok());
    length.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn line(kind: char, text: impl std::fmt::Display, bytes: &mut Vec<u8>) {
    bytes.extend(format!("{kind}{text}\r\n").into_bytes());
}

/// Writes the values that the server replies with.
fn encode(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Int(number) => line(':', number, bytes),
        Value::BulkString(text) => {
            line('$', text.len(), bytes);
            bytes.extend(text);
            bytes.extend(b"\r\n");
        }
        Value::SimpleString(text) => line('+', text, bytes),
        Value::Okay => line('+', "OK", bytes),
        Value::Array(list) => {
            line('*', list.len(), bytes);
            for value in list {
                encode(value, bytes);
            }
        }
        Value::Map(pairs) => {
            line('%', pairs.len(), bytes);
            for value in pairs.iter().flat_map(|(name, value)| [name, value]) {
                encode(value, bytes);
            }
        }
        Value::Push { kind, data } => {
            line('>', data.len().saturating_add(1), bytes);
            let kind = if *kind == PushKind::Subscribe { "subscribe" } else { "message" };
            encode(&Value::BulkString(kind.into()), bytes);
            for value in data {
                encode(value, bytes);
            }
        }
        _ => line('_', "", bytes),
    }
}
