//! Fenced blocks of a document, and what a reader does with each of their lines.

use std::path::Path;

/// A fenced block.
pub(crate) struct Block {
    pub(crate) language: String,
    /// Where it begins in its document.
    pub(crate) line: usize,
    pub(crate) lines: Vec<String>,
}

/// How a line of a block is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// It must end with success.
    Ends,
    /// It runs until the block is done: a service.
    Stays,
    /// It takes minutes: it must begin and get to work without an error, and is then interrupted.
    Begins,
    /// It is not run here; this is run elsewhere, or why it is not run at all.
    Elsewhere(&'static str),
}

/// Beginnings of lines that are not run here. What has a path is a file that runs the line. `check-install.sh` takes the lines to install, to
/// upgrade and of the first job from docs/operations.md, and replaces the editor by what it writes, and a systemd that runs by one that does
/// not; the lines to remove the package, and those of README.md, are commands that it has as well.
pub(crate) const ELSEWHERE: &[(&str, &str)] = &[
    ("cargo run --release -- demo", "crates/cli/tests/demo.rs"),
    ("cargo xtask", "not run: it runs these tests"),
    ("cargo build --release", "not run: the build of these tests does the same"),
    ("srun ", "crates/cli/tests/launch/within_slurm.rs"),
    ("pleach launch --nodes 3 -- ./program", "crates/cli/tests/launch/batch_job.rs"),
    ("mpirun.mpich ", "crates/pleach-mpi/tests"),
    ("apt", "packaging/check-install.sh"),
    ("sudo apt", "packaging/check-install.sh"),
    ("sudo editor", "packaging/check-install.sh"),
    ("sudo scp", "not run: it needs a second host with the package"),
    ("sudo systemctl", "packaging/check-install.sh"),
    ("export PLEACH_SECRET_FILE=/etc/pleach/secret     # made by the package", "packaging/check-install.sh"),
    ("mpicc -o sum", "packaging/check-install.sh"),
    ("pleach doctor -- mpirun -n 2 ./sum", "packaging/check-install.sh"),
    ("pleach exec -- mpirun -n 2 ./sum", "packaging/check-install.sh"),
];

const BEGINS: &[&str] = &[
    "pleach bench ",
    "pleach chaos --minutes",
    "pleach chaos --case",
    "pleach reproduce ",
    "pleach soak --seeds",
    "tshark ",
    "ssh -N ",
];

pub(crate) fn treatment(line: &str) -> Treatment {
    if let Some((_, by)) = ELSEWHERE.iter().find(|(start, _)| line.starts_with(start)) {
        return Treatment::Elsewhere(by);
    }
    let words = line.split_whitespace();
    let command: Vec<&str> =
        words.skip_while(|word| word.contains('=') || *word == "sudo" || word.ends_with('\'')).collect();
    let command = command.join(" ");
    let starts = |start: &&str| command.starts_with(*start);
    if ["pleach manager", "pleach node"].iter().any(starts) || line.starts_with("PLEACH_RANK=0 ") {
        Treatment::Stays
    } else if BEGINS.iter().any(starts) {
        Treatment::Begins
    } else {
        Treatment::Ends
    }
}

/// All fenced blocks of a document.
pub(crate) fn blocks_of(path: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(path).expect("text");
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(language) => {
                is_open = true;
                blocks.push(Block { language: language.to_owned(), line: index + 1, lines: Vec::new() });
            }
            None if is_open => blocks.last_mut().expect("one is open").lines.push(line.to_owned()),
            None => {}
        }
    }
    assert!(!is_open, "{}: a block does not end", path.display());
    blocks
}
