//! The command line: one file per subcommand, and what they share.
//!
//! Results go to stdout, everything else to stderr. With `--json` each command prints one document
//! that names its version: its result or, where it fails before it has one, its error.

mod cache;
mod cat;
mod check;
mod clean;
mod clean_url;
mod complete;
mod duration;
mod error_code;
mod explain;
mod hook_exec;
mod init;
mod inspect;
mod keys;
mod main;
mod output;
mod path;
mod plan;
mod progress;
mod pull;
mod push;
mod run;
mod schema;
mod signals;
mod status;
mod target;
mod test;
mod transfer;
mod verify;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use main::main;
pub use output::{CliError, Console};

use crate::codes::Code;
use crate::config::Registry;
use crate::pipeline::{Pipeline, PipelineError, RunOverrides};

/// Runs pipeline definitions that turn raw datasets into memory-mapped row stores for training.
///
/// Exit codes: 0 done · 1 failed, a retry may help · 2 definition or usage wrong · 3 data refused ·
/// 4 verification failed · 75 stopped by a signal, run again to go on.
#[derive(Debug, Parser)]
#[command(name = "rowmill", version, propagate_version = true)]
pub struct Cli {
    /// Form of the log on stderr.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log: LogFormat,
    /// What to log: error, warn, info, debug or trace.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn")]
    pub log_level: tracing::Level,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object per line.
    Json,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print a definition to begin with, or the values of a column as a list for one.
    Init(init::InitArgs),
    /// Build the dataset of a definition, or go on with it.
    Run(run::RunArgs),
    /// Check a definition: sources, types of every stage, one batch through, disk space.
    Check(check::CheckArgs),
    /// Send the rows of a definition's tests through its transforms and compare what comes out.
    Test(test::TestArgs),
    /// Say what a run would do, what it would reuse, and how much memory it may take.
    Plan(plan::PlanArgs),
    /// Say how far a dataset is, who is writing to it, and which cache keys there are.
    Status(status::StatusArgs),
    /// Show what a dataset or shard holds.
    Inspect(inspect::InspectArgs),
    /// Print rows as JSON, a line each.
    Cat(cat::CatArgs),
    /// Check every byte of a dataset or shard against its sums.
    Verify(verify::VerifyArgs),
    /// Send a complete dataset to an object store, or go on with it; what is there is not sent again.
    Push(push::PushArgs),
    /// Bring a complete dataset, or some of its shards, from an object store to a folder.
    Pull(pull::PullArgs),
    /// Remove old generations, old cache keys and what crashes left; only says what, without --yes.
    Clean(clean::CleanArgs),
    /// Look after a feature cache: list, check, prune and compact what hooks have answered.
    Cache(cache::CacheArgs),
    /// Print the folder of a definition's dataset.
    Path(path::PathArgs),
    /// Print the JSON Schema of definitions, for editors.
    Schema(schema::SchemaArgs),
    /// Say what the code of an error or reject means, why it happens and what to do.
    Explain(explain::ExplainArgs),
    /// Print completions for a shell.
    Completions(complete::CompletionsArgs),
    /// Become the process of a feature hook.
    #[command(hide = true)]
    HookExec(hook_exec::HookExecArgs),
}

impl Command {
    /// Whether a JSON document was asked for.
    fn is_json(&self) -> bool {
        match self {
            Self::Init(args) => args.is_json(),
            Self::Run(args) => args.json,
            Self::Check(args) => args.json,
            Self::Test(args) => args.json,
            Self::Plan(args) => args.json,
            Self::Status(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Cat(args) => args.json,
            Self::Verify(args) => args.json,
            Self::Push(args) => args.json,
            Self::Pull(args) => args.json,
            Self::Clean(args) => args.json,
            Self::Cache(args) => args.is_json(),
            Self::Path(args) => args.json,
            Self::Schema(args) => args.json,
            Self::Explain(args) => args.json,
            Self::Completions(args) => args.json,
            Self::HookExec(_) => false,
        }
    }
}

/// A definition and what overrides it, as most commands take them.
#[derive(Debug, Args)]
pub struct DefinitionArgs {
    /// The pipeline definition, a TOML file.
    pub definition: PathBuf,
    /// Folder for datasets, instead of the definition's `run.out`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Override a setting, such as `dataset.shard_bytes=64MiB`; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Read only this many rows of the dataset's beginning.
    #[arg(long, value_name = "N")]
    pub limit_rows: Option<u64>,
    /// Partitions built at once.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Most memory to use, such as `1GiB`.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

impl DefinitionArgs {
    /// Reads the definition and tells what is odd about it.
    fn load(&self, registry: Registry, console: &Console) -> Result<Pipeline, PipelineError> {
        let pipeline = Pipeline::load(&self.definition, &self.overrides(), registry)?;
        for warning in pipeline.warnings() {
            console.note(&format!("warning: {warning}"));
        }
        Ok(pipeline)
    }

    /// The flags as overrides of the definition.
    #[must_use]
    pub fn overrides(&self) -> RunOverrides {
        RunOverrides {
            set: self.set.clone(),
            out: self.out.clone(),
            jobs: self.jobs,
            memory: self.memory.clone(),
            limit_rows: self.limit_rows,
        }
    }
}

impl Cli {
    /// Says what is wrong with the arguments, or prints the help or version that was asked for.
    #[must_use]
    pub fn refuse(error: &clap::Error, console: &Console) -> ExitCode {
        let is_json = std::env::args_os().any(|arg| arg == "--json");
        if error.use_stderr() && is_json {
            let text = error.render().to_string();
            // What follows is the usage, for people.
            let message = text.split("\n\n").next().unwrap_or_default();
            let message = message.strip_prefix("error: ").unwrap_or(message).trim_end();
            console.error_document(Code::Usage, message, Some("`rowmill --help` tells the usage"));
        }
        // If nobody can read it, there is nobody to tell.
        error.print().ok();
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    }

    /// Does what was asked.
    ///
    /// # Errors
    /// Why it was not done. Nothing of it was printed.
    pub fn perform(self, registry: Registry, console: &Console) -> Result<(), CliError> {
        match self.command {
            Command::Init(args) => init::execute(&args, registry, console),
            Command::Run(args) => run::execute(&args, registry, console),
            Command::Check(args) => check::execute(&args, registry, console),
            Command::Test(args) => test::execute(&args, registry, console),
            Command::Plan(args) => plan::execute(&args, registry, console),
            Command::Status(args) => status::execute(&args, registry, console),
            Command::Inspect(args) => inspect::execute(&args, registry, console),
            Command::Cat(args) => cat::execute(&args, registry, console),
            Command::Verify(args) => verify::execute(&args, registry, console),
            Command::Push(args) => push::execute(&args, registry, console),
            Command::Pull(args) => pull::execute(&args, console),
            Command::Clean(args) => clean::execute(&args, registry, console),
            Command::Cache(args) => cache::execute(&args, console),
            Command::Path(args) => path::execute(&args, registry, console),
            Command::Schema(args) => schema::execute(&args, registry, console),
            Command::Explain(args) => explain::execute(&args, registry, console),
            Command::Completions(args) => complete::execute(&args, console),
            Command::HookExec(args) => hook_exec::execute(&args).map(|_| ()),
        }
    }

    /// Does what was asked, prints what went wrong and tells how it ended. Definitions may name what
    /// is in `registry`.
    #[must_use]
    pub fn execute(self, registry: Registry, console: &Console) -> ExitCode {
        let is_json = self.command.is_json();
        let performed = match self.command {
            Command::HookExec(args) => hook_exec::execute(&args).map(ExitCode::from),
            _ => self.perform(registry, console).map(|()| ExitCode::SUCCESS),
        };
        match performed {
            Ok(code) => code,
            Err(error) => {
                if is_json {
                    let (message, hint) = (output::with_causes(&error), error.hint());
                    console.error_document(error.code(), &message, hint.as_deref());
                }
                console.error(&error);
                ExitCode::from(error.exit_code())
            }
        }
    }
}
