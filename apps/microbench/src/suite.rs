//! `report`: runs a list of measurements, each as a process of its own, and keeps all of their
//! tables in one file.
//!
//! | file | holds |
//! |---|---|
//! | `plan` | the list |
//! | `needs` | what a measurement needs, and what this machine has |
//! | `child` | one measurement as a process, with a limit of time |
//! | `kept` | the file, which a later run goes on with |

mod child;
mod kept;
mod needs;
mod plan;

use crate::effort::Effort;
use crate::outcome::Outcome;
use crate::pair::Daemon;
use crate::report::{Build, Ending, Measurement, Table, merge};
use crate::scratch::Scratch;
use clap::Args;
use gpunet_app::proxy::ProxyArgs;
use kept::Kept;
use needs::{Here, Need};
use plan::{PLAN, Planned};
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What `report` takes.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// The report's file. It is written after each measurement. If it is there, the report goes on:
    /// what this program has measured on this machine is not measured again.
    #[arg(long, value_name = "FILE.json", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// Run these measurements only.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = plan::names())]
    only: Vec<String>,
    /// Run each measurement so often. Rows are the medians, and have their spread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=25))]
    times: u32,
    /// Begin no measurement after so many seconds, and end the one that runs then. The next run
    /// with the same file does the rest.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    within: Option<u64>,
    /// Let each measurement take so many times as long, on a machine that is emulated.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    slowdown: u32,
    /// Address of an RDMA device of this machine. Without it nothing is measured over rc.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Measure everything anew, and replace what the file has of another version or machine.
    #[arg(long)]
    again: bool,
    /// Print the measurements, how long each may take, and which cannot run here. Measures nothing.
    #[arg(long, conflicts_with_all = ["out", "times", "within", "again"])]
    list: bool,
}

/// The options that every measurement gets.
pub struct Common<'a> {
    /// `--device`, as the command line has it.
    pub device: &'a str,
    /// Whether the command line does not name the device.
    pub is_auto: bool,
    pub effort: Effort,
    pub without_foreign: bool,
    pub proxy: &'a ProxyArgs,
}

/// Runs the list; returns false if a measurement failed.
pub fn report(args: &ReportArgs, common: &Common<'_>) -> Outcome<bool> {
    let here = Here::look(common, args.address);
    let chosen: Vec<_> = PLAN.iter().filter(|one| args.chooses(one)).collect();
    let Some(out) = args.out.as_deref() else {
        list(args, &chosen, common.effort, &here);
        return Ok(true);
    };
    let command: Vec<_> = std::env::args().skip(1).collect();
    let mut kept = Kept::open(out, format!("gpunet-bench {}", command.join(" ")), args.again)?;
    if Build::look().profile != "release" {
        progress("this is a debug build, whose figures say little: cargo build --release");
    }
    let mut suite = Suite::new(common, here, args)?;
    progress(&format!("{} measurements, at most {} s", chosen.len(), suite.all(&chosen).as_secs()));
    for (nth, planned) in chosen.iter().enumerate() {
        let place = format!("[{:>2}/{}] {}", nth + 1, chosen.len(), planned.name);
        let arguments = suite.arguments(planned);
        let command = format!("gpunet-bench {}", arguments.join(" "));
        if kept.has(planned.name, &command, args.times) {
            progress(&format!("{place}: is in the file"));
            continue;
        }
        if args.leaves_out(planned, common.effort).is_none() {
            suite.allowed += args.limit(planned, common.effort) * args.times;
        }
        let (measurement, tables) = suite.measure(planned, &arguments, command, &place)?;
        let why = measurement.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let ending = match measurement.outcome {
            Ending::Done => format!("done, {:.1} s", measurement.seconds),
            Ending::Failed => format!("FAILED after {:.1} s", measurement.seconds),
            Ending::Missing => "not measured".to_owned(),
        };
        progress(&format!("{place}: {ending}{why}"));
        kept.put(measurement, tables)?;
    }
    kept.finish()?;
    let count = |ending| kept.measurements().iter().filter(|one| one.outcome == ending).count();
    let [done, failed, missing] = [Ending::Done, Ending::Failed, Ending::Missing].map(count);
    progress(&format!("{}: {done} done, {failed} failed, {missing} not measured", out.display()));
    Ok(failed == 0)
}

impl ReportArgs {
    fn chooses(&self, planned: &Planned) -> bool {
        self.only.is_empty() || self.names(planned)
    }

    fn names(&self, planned: &Planned) -> bool {
        self.only.iter().any(|name| name == planned.name)
    }

    /// Returns how long a measurement may take.
    fn limit(&self, planned: &Planned, effort: Effort) -> Duration {
        planned.limit(effort) * self.slowdown
    }

    /// Returns why a measurement does not run that could.
    fn leaves_out(&self, planned: &Planned, effort: Effort) -> Option<String> {
        let runs = planned.is_usual(effort) || self.names(planned);
        (!runs).then(|| "it takes longer: report --full, or --only".to_owned())
    }
}

fn list(args: &ReportArgs, chosen: &[&Planned], effort: Effort, here: &Here) {
    let mut out = std::io::stdout().lock();
    for planned in chosen {
        let [name, limit] = [planned.name.to_owned(), format!("{} s", args.limit(planned, effort).as_secs())];
        let why = here.lacks(planned.needs).map(|why| format!("  not here: {why}"));
        let with_full = (!planned.is_usual(effort)).then(|| "  with --full, or by --only".to_owned());
        let why = why.or(with_full).unwrap_or_default();
        // Nobody may read it any more.
        let _ = writeln!(out, "{name:<34} {limit:>7}{why}");
    }
}

/// Prints a line about the progress. A failure is ignored, because the file has what counts.
fn progress(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// A run of the list.
struct Suite<'a> {
    common: &'a Common<'a>,
    here: Here,
    args: &'a ReportArgs,
    begin: Instant,
    /// How long those that have been begun may take together, those that cannot run included: what
    /// one leaves is left to the next ones.
    allowed: Duration,
    /// The daemon of measurements that need one.
    daemon: Option<Daemon>,
    /// Where foreign programs are built, and where it is kept what they have said.
    foreign: Scratch,
}

impl<'a> Suite<'a> {
    fn new(common: &'a Common<'a>, here: Here, args: &'a ReportArgs) -> Outcome<Self> {
        let (begin, allowed, daemon) = (Instant::now(), Duration::ZERO, None);
        Ok(Self { common, here, args, begin, allowed, daemon, foreign: scratch("foreign")? })
    }

    /// Returns how long the measurements may take together. The time of those that cannot run here
    /// is left to the others.
    fn all(&self, chosen: &[&Planned]) -> Duration {
        let effort = self.common.effort;
        let runs = |one: &&&Planned| self.args.leaves_out(one, effort).is_none();
        chosen.iter().filter(runs).map(|one| self.args.limit(one, effort)).sum::<Duration>() * self.args.times
    }

    /// Returns why a measurement does not run.
    fn lacks(&self, planned: &Planned) -> Option<String> {
        self.here.lacks(planned.needs).or_else(|| self.args.leaves_out(planned, self.common.effort))
    }

    /// Returns the arguments by which a measurement is started, without what differs from run to
    /// run.
    fn arguments(&self, planned: &Planned) -> Vec<String> {
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
        if !self.common.is_auto {
            add(&["--device", self.common.device]);
        }
        // A report that has to end soon has the rounds of --quick.
        add(&[if self.common.effort == Effort::Full { "--full" } else { "--quick" }]);
        if self.common.without_foreign {
            add(&["--without-foreign"]);
        }
        if let Some(path) = self.common.proxy.daemon.as_ref().filter(|_| self.common.proxy.names_a_daemon()) {
            add(&["--daemon", &path.to_string_lossy()]);
        }
        let lines = self.common.proxy.lines.map(|lines| lines.to_string());
        if let Some(lines) = planned.lines.or(lines.as_deref()) {
            add(&["--lines", lines]);
        }
        let address = self.args.address.map(|address| address.to_string()).unwrap_or_default();
        for word in planned.args {
            add(&[match *word {
                plan::OTHER_GPU => self.here.other_gpu(),
                plan::ADDRESS => &address,
                word => word,
            }]);
        }
        arguments
    }

    /// Runs a measurement as often as the command line says.
    fn measure(
        &mut self,
        planned: &Planned,
        arguments: &[String],
        command: String,
        place: &str,
    ) -> Outcome<(Measurement, Vec<Table>)> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let begin = Instant::now();
        let mut measurement = Measurement {
            name: planned.name.to_owned(),
            command,
            outcome: Ending::Missing,
            why: self.lacks(planned),
            started,
            seconds: 0.0,
            times: self.args.times,
        };
        if measurement.why.is_some() {
            return Ok((measurement, Vec::new()));
        }
        let mut runs = Vec::new();
        for nth in 0..self.args.times {
            // The runs that are left share what is left of the time for all begun.
            let left = self.allowed.saturating_sub(self.begin.elapsed()) / (self.args.times - nth);
            let mut limit = left.max(self.args.limit(planned, self.common.effort));
            let left = self
                .args
                .within
                .map(|within| Duration::from_secs(within).saturating_sub(self.begin.elapsed()));
            let is_cut = left.is_some_and(|left| left < limit);
            limit = left.map_or(limit, |left| left.min(limit));
            if limit.is_zero() {
                measurement.why = Some(self.out_of_time());
                break;
            }
            if runs.is_empty() {
                progress(&format!("{place}: at most {} s", limit.as_secs()));
            }
            let extra = self.daemon_of(planned);
            let scratch = scratch("run")?;
            let foreign = self.foreign.path().join(nth.to_string());
            std::fs::create_dir_all(&foreign).map_err(|error| format!("{}: {error}", foreign.display()))?;
            let foreign = ["--foreign-folder".to_owned(), foreign.to_string_lossy().into_owned()];
            let ended = match extra {
                Ok(extra) => child::run(&[&extra, arguments, &foreign].concat(), &scratch, limit),
                Err(error) => {
                    child::Ended { tables: Vec::new(), why: Some(error.to_string()), is_late: false }
                }
            };
            runs.push(ended.tables);
            if ended.is_late && is_cut {
                measurement.why = Some(self.out_of_time());
                // It is not at fault.
                runs.clear();
                break;
            }
            if let Some(why) = ended.why {
                (measurement.outcome, measurement.why) = (Ending::Failed, Some(why));
                break;
            }
        }
        if measurement.why.is_none() {
            measurement.outcome = Ending::Done;
        } else if measurement.outcome == Ending::Missing {
            runs.clear();
        }
        measurement.seconds = (begin.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let mut tables = merge(runs);
        tables.iter_mut().for_each(|table| table.measurement = Some(planned.name.to_owned()));
        Ok((measurement, tables))
    }

    fn out_of_time(&self) -> String {
        let within = self.args.within.unwrap_or_default();
        format!("there was no time left of --within {within}: run it again with the same file")
    }

    /// Returns the arguments that name a daemon to a measurement that cannot start its own.
    fn daemon_of(&mut self, planned: &Planned) -> Outcome<Vec<String>> {
        if !planned.needs.contains(&Need::Daemon) || self.common.proxy.names_a_daemon() {
            return Ok(Vec::new());
        }
        if self.daemon.is_none() {
            self.daemon = Some(Daemon::start(self.common.proxy)?);
        }
        let path = self.daemon.as_ref().map(|daemon| daemon.path().to_string_lossy().into_owned());
        Ok(["--daemon".to_owned()].into_iter().chain(path).collect())
    }
}

/// Makes a folder that is removed when it is dropped.
fn scratch(what: &str) -> Outcome<Scratch> {
    let name = format!("gpunet-bench-report-{what}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    Ok(Scratch::folder(folder.clone()).map_err(|error| format!("{}: {error}", folder.display()))?)
}
