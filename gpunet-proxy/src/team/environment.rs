//! Which member of its team a program is, from the environment that its launcher has set.

use super::TeamId;
use super::error::EnvironmentError;
use gpunet_device::team::Rank;
use std::net::{SocketAddr, ToSocketAddrs};

/// The variable that names the team itself. It has precedence over the launcher's variables.
const TEAM: &str = "GPUNET_TEAM";

/// A program's place among those that a launcher has started together.
///
/// | launcher | rank and size | where they meet |
/// |---|---|---|
/// | torchrun, and launchers that set the same variables | `RANK`, `WORLD_SIZE` | `MASTER_ADDR`, and the port after `MASTER_PORT`, which torchrun uses itself |
/// | Open MPI (`mpirun`) | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | this machine, at a port that follows from the job's name |
/// | Slurm (`srun`) | `SLURM_PROCID`, `SLURM_NTASKS` | this machine, likewise |
///
/// `GPUNET_TEAM`, a [`TeamId`], names the meeting place instead; it is needed if two teams of one
/// job meet, or if the port is taken.
///
/// # Examples
/// ```
/// use gpunet_proxy::device::Rank;
/// use gpunet_proxy::team::Launched;
///
/// let variables = [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
/// let variable = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
/// let launched = Launched::by(&variable)?;
/// assert_eq!((launched.rank, launched.size, launched.id.address().port()), (Rank(1), 4, 29501));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Where the members meet.
    pub id: TeamId,
    /// The rank of this program.
    pub rank: Rank,
    /// The number of members.
    pub size: u32,
}

/// The variables of one launcher.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    /// The variable with the number of members on this machine, or with the number of machines, and
    /// the value that it must have; `None` stands for the number of members.
    one_machine: (&'static str, Option<&'static str>),
    /// The variables that tell one job from another.
    job: [&'static str; 2],
}

const OPEN_MPI: Launcher = Launcher {
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    one_machine: ("OMPI_COMM_WORLD_LOCAL_SIZE", None),
    job: ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
};
const SLURM: Launcher = Launcher {
    rank: "SLURM_PROCID",
    size: "SLURM_NTASKS",
    one_machine: ("SLURM_NNODES", Some("1")),
    job: ["SLURM_JOB_ID", "SLURM_STEP_ID"],
};

/// Reads a variable.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Launched {
    /// Reads the environment of this program.
    ///
    /// # Errors
    /// [`EnvironmentError`].
    pub fn from_environment() -> Result<Self, EnvironmentError> {
        Self::by(&|name| std::env::var(name).ok())
    }

    /// Reads the variables by the given function.
    ///
    /// # Errors
    /// [`EnvironmentError`].
    pub fn by(variable: Variable<'_>) -> Result<Self, EnvironmentError> {
        // Inside a Slurm job, mpirun sets its own variables in addition to Slurm's.
        let launcher = [&OPEN_MPI, &SLURM].into_iter().find(|launcher| variable(launcher.rank).is_some());
        let (rank, size) = match (variable("RANK"), launcher) {
            (Some(_), _) => ("RANK", "WORLD_SIZE"),
            (None, Some(launcher)) => (launcher.rank, launcher.size),
            (None, None) => return Err(EnvironmentError::NotLaunched),
        };
        let (rank, size) = (Rank(number(variable, rank)?), number(variable, size)?);
        let id = match (variable(TEAM), variable("RANK"), launcher) {
            (Some(text), ..) => {
                text.parse().map_err(|error: super::InvalidTeamId| invalid(TEAM, &text, error))?
            }
            (None, None, Some(launcher)) => launcher.id(variable)?,
            (None, ..) => torchrun(variable)?,
        };
        Ok(Self { id, rank, size })
    }
}

fn invalid(variable: &'static str, value: &str, problem: impl ToString) -> EnvironmentError {
    EnvironmentError::Invalid { variable, value: value.to_owned(), problem: problem.to_string() }
}

fn required(variable: Variable<'_>, name: &'static str) -> Result<String, EnvironmentError> {
    variable(name).ok_or(EnvironmentError::Missing(name))
}

fn number(variable: Variable<'_>, name: &'static str) -> Result<u32, EnvironmentError> {
    let text = required(variable, name)?;
    text.parse().map_err(|error| invalid(name, &text, error))
}

/// The team of programs that torchrun has started.
fn torchrun(variable: Variable<'_>) -> Result<TeamId, EnvironmentError> {
    let (host, port) = (required(variable, "MASTER_ADDR")?, required(variable, "MASTER_PORT")?);
    let number: u16 = port.parse().map_err(|error| invalid("MASTER_PORT", &port, error))?;
    let next =
        number.checked_add(1).ok_or_else(|| invalid("MASTER_PORT", &port, "there is no port after it"))?;
    // Brackets belong to an address with its port, and are common without one.
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    let mut found = (host, next).to_socket_addrs().map_err(|error| invalid("MASTER_ADDR", host, error))?;
    let address = found.next().ok_or_else(|| invalid("MASTER_ADDR", host, "it has no address"))?;
    // Restarts of a job are teams of their own.
    let run = variable("TORCHELASTIC_RUN_ID").unwrap_or_default();
    let restart = variable("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    Ok(TeamId::named(address, &format!("torchrun/{host}/{port}/{run}/{restart}")))
}

impl Launcher {
    fn id(&self, variable: Variable<'_>) -> Result<TeamId, EnvironmentError> {
        let (name, expected) = self.one_machine;
        let expected = expected.map(str::to_owned).or_else(|| variable(self.size));
        if variable(name).is_some_and(|value| Some(value) != expected) {
            return Err(EnvironmentError::SeveralMachines);
        }
        let job: Vec<_> = self.job.iter().filter_map(|name| variable(name)).collect();
        if job.is_empty() {
            return Err(EnvironmentError::Missing(self.job[0]));
        }
        let job = format!("{}/{}", self.rank, job.join("/"));
        // A port outside the range from which the system assigns free ports (it begins at 32768).
        let nonce = TeamId::named(SocketAddr::from(([127, 0, 0, 1], 1)), &job).nonce();
        let port = 20_000 + (nonce % 10_000) as u16;
        Ok(TeamId::named(SocketAddr::from(([127, 0, 0, 1], port)), &job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(variables: &[(&str, &str)]) -> Result<Launched, EnvironmentError> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Launched::by(&|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn members_of_one_job_find_the_same_team_and_those_of_another_do_not() {
        let slurm = |job, rank| {
            launched(&[
                ("SLURM_PROCID", rank),
                ("SLURM_NTASKS", "2"),
                ("SLURM_NNODES", "1"),
                ("SLURM_JOB_ID", job),
            ])
        };
        let (first, second) = (slurm("7", "0").expect("a team"), slurm("7", "1").expect("a team"));
        assert_eq!((first.id, first.rank, second.rank, second.size), (second.id, Rank(0), Rank(1), 2));
        assert_ne!(slurm("8", "0").expect("a team").id, first.id);
        let mpi = |rank| {
            launched(&[
                ("OMPI_COMM_WORLD_RANK", rank),
                ("OMPI_COMM_WORLD_SIZE", "4"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
                ("PMIX_NAMESPACE", "prterun-7@1"),
                ("SLURM_PROCID", "9"),
            ])
        };
        let third = mpi("3").expect("a team");
        assert_eq!((third.rank, third.size, third.id), (Rank(3), 4, mpi("0").expect("a team").id));
        assert!((20_000..30_000).contains(&third.id.address().port()));
    }

    #[test]
    fn an_address_may_have_brackets() {
        let [bare, bracketed] = ["::1", "[::1]"].map(|host| {
            launched(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", host), ("MASTER_PORT", "29500")])
        });
        assert_eq!(bare.as_ref().expect("a team").id.address(), "[::1]:29501".parse().expect("an address"));
        assert_eq!(bracketed, bare, "the same team");
    }

    #[test]
    fn a_team_that_is_named_goes_before_the_launchers() {
        let id = TeamId::new(SocketAddr::from(([127, 0, 0, 1], 9))).expect("random numbers");
        let text = id.to_string();
        let found = launched(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("GPUNET_TEAM", &text)]);
        assert_eq!(found, Ok(Launched { id, rank: Rank(0), size: 1 }));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        use EnvironmentError::{Invalid, Missing, NotLaunched, SeveralMachines};
        assert_eq!(launched(&[]), Err(NotLaunched));
        assert_eq!(launched(&[("RANK", "0")]), Err(Missing("WORLD_SIZE")));
        assert_eq!(launched(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Err(Missing("MASTER_ADDR")));
        let wrong = launched(&[("RANK", "-1"), ("WORLD_SIZE", "1")]);
        assert!(matches!(wrong, Err(Invalid { variable: "RANK", .. })), "{wrong:?}");
        let port =
            [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "65535")];
        assert!(matches!(launched(&port), Err(Invalid { variable: "MASTER_PORT", .. })));
        let spread =
            [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_NNODES", "2"), ("SLURM_JOB_ID", "1")];
        assert_eq!(launched(&spread), Err(SeveralMachines));
    }
}
