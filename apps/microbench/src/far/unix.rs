//! The peer of streams between two processes: a Unix-domain stream socket.

use super::task::{Task, Work};
use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Plays one end; returns the client's nanoseconds per round, or the server's bytes and nanoseconds.
pub fn run(task: &Task) -> Result<Vec<u64>> {
    let path = std::env::temp_dir().join(format!("gpunet-bench-{}-{}", task.run, task.port));
    let mut stream = if task.serves { accept(path)? } else { connect(path)? };
    match task.work {
        Work::UnixEcho { spin, size, rounds } => {
            stream.set_nonblocking(spin)?;
            let mut message = vec![7; size as usize];
            if task.serves {
                return echo(&mut stream, &mut message, rounds);
            }
            let mut samples = Vec::with_capacity(rounds as usize);
            for _ in 0..rounds {
                let start = Instant::now();
                write(&mut stream, &message)?;
                read(&mut stream, &mut message)?;
                samples.push(start.elapsed().as_nanos() as u64);
            }
            Ok(samples)
        }
        Work::UnixFlow { message, bytes } => {
            let mut buffer = vec![1; message as usize];
            let (start, mut moved) = (Instant::now(), 0);
            while moved < bytes {
                moved += if task.serves {
                    match stream.read(&mut buffer)? {
                        0 => break,
                        n => n as u64,
                    }
                } else {
                    stream.write_all(&buffer)?;
                    message
                };
            }
            Ok(vec![moved, start.elapsed().as_nanos() as u64])
        }
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}

fn accept(path: PathBuf) -> Result<UnixStream> {
    let listener = UnixListener::bind(&path)?;
    let stream = listener.accept();
    std::fs::remove_file(path)?;
    Ok(stream?.0)
}

fn connect(path: PathBuf) -> Result<UnixStream> {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        match UnixStream::connect(&path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
                    && Instant::now() < limit =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

fn echo(stream: &mut UnixStream, message: &mut [u8], rounds: u64) -> Result<Vec<u64>> {
    for _ in 0..rounds {
        read(stream, message)?;
        write(stream, message)?;
    }
    Ok(Vec::new())
}

/// Fills `message`; on a non-blocking socket by asking again and again.
fn read(stream: &mut UnixStream, message: &mut [u8]) -> Result<()> {
    let mut have = 0;
    while have < message.len() {
        match stream.read(&mut message[have..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write(stream: &mut UnixStream, message: &[u8]) -> Result<()> {
    let mut sent = 0;
    while sent < message.len() {
        match stream.write(&message[sent..]) {
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
