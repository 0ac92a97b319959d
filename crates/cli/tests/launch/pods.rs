//! The manifest in `examples/kubernetes`: it fits together, and what its pods run is a job on hosts that stand in for the pods.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use serde_json::Value;

use super::*;

/// Fewer pods and ranks than in the manifest, which is for a cluster.
const PODS: usize = 2;
const RANKS_OF_A_POD: &str = "2";
/// Seconds that the job may take.
const JOB_TIMEOUT: &str = "60";

/// The documents of the manifest, as a parser of YAML reads them.
struct Manifest {
    documents: Vec<Value>,
}

impl Manifest {
    fn read() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes/job.yaml");
        let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
        // Debian's own interpreter finds Debian's parser.
        let read = Command::new("/usr/bin/python3").args(["-c", script]).arg(file).output().expect("python3");
        assert!(read.status.success(), "{}", text(&read.stderr));
        Self { documents: serde_json::from_slice(&read.stdout).expect("a list of documents") }
    }

    #[track_caller]
    fn document(&self, kind: &str) -> &Value {
        let mut found = self.documents.iter().filter(|document| document["kind"] == kind);
        let document = found.next().unwrap_or_else(|| panic!("there is no {kind}"));
        assert!(found.next().is_none(), "there are two of {kind}");
        document
    }

    fn job(&self) -> &Value {
        &self.document("Job")["spec"]
    }

    fn pod(&self) -> &Value {
        &self.job()["template"]["spec"]
    }

    fn container(&self) -> &Value {
        let containers = self.pod()["containers"].as_array().expect("a list");
        assert_eq!(containers.len(), 1);
        &containers[0]
    }

    fn command(&self) -> Vec<&str> {
        let words = self.container()["command"].as_array().expect("a list");
        words.iter().map(|word| word.as_str().expect("a text")).collect()
    }

    /// A variable of the container.
    #[track_caller]
    fn variable(&self, name: &str) -> &Value {
        let variables = self.container()["env"].as_array().expect("a list");
        variables.iter().find(|variable| variable["name"] == name).unwrap_or_else(|| panic!("{name} is not set"))
    }
}

#[test]
fn the_kubernetes_example_fits_together() {
    let manifest = Manifest::read();
    let (service, job) = (manifest.document("Service"), manifest.document("Job"));
    let (service_name, job_name) = (&service["metadata"]["name"], &job["metadata"]["name"]);
    assert_eq!((&service["apiVersion"], &job["apiVersion"]), (&"v1".into(), &"batch/v1".into()));
    // The pods' names resolve, before any pod is ready.
    assert_eq!(service["spec"]["clusterIP"], "None", "headless");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(&service["spec"]["selector"]["job-name"], job_name);
    assert_eq!(&manifest.pod()["subdomain"], service_name);
    let rendezvous = manifest.variable("PLEACH_RENDEZVOUS")["value"].as_str().expect("a text");
    let pod_zero = format!("{}-0.{}:", job_name.as_str().expect("a name"), service_name.as_str().expect("a name"));
    assert!(rendezvous.starts_with(&pod_zero), "{rendezvous} is not in {pod_zero}");
    // All pods run at once, each with its number.
    assert_eq!(manifest.job()["completionMode"], "Indexed");
    let pods = manifest.job()["completions"].as_u64().expect("a number");
    assert_eq!(manifest.job()["parallelism"].as_u64(), Some(pods));
    assert_eq!(manifest.variable("PLEACH_PODS")["value"], pods.to_string());
    assert_eq!(manifest.pod()["restartPolicy"], "Never");
    // A variable of Kubernetes is a text; a number would be rejected.
    for variable in manifest.container()["env"].as_array().expect("a list") {
        assert!(variable["value"].is_string() || variable["valueFrom"]["secretKeyRef"].is_object(), "{variable}");
    }
    let volumes = manifest.pod()["volumes"].as_array().expect("a list");
    for mount in manifest.container()["volumeMounts"].as_array().expect("a list") {
        assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
    }
}

/// What a pod runs, with its variables, on a host with the pod's name.
fn pod_command(manifest: &Manifest, index: usize, names: &Path) -> Command {
    let own = std::env::current_exe().expect("this test").display().to_string();
    let mut words = manifest.command();
    assert_eq!(words.remove(0), "pleach");
    let ranks = words.iter().position(|word| *word == "-n").expect("it says how many ranks a pod has") + 1;
    words[ranks] = RANKS_OF_A_POD;
    assert_eq!(words.pop(), Some("/usr/local/bin/program"));
    let script = format!("hostname pleach-job-{index}; mount --bind {} /etc/hosts; exec \"$@\"", names.display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--uts", "sh", "-c", &script, "sh", "timeout", JOB_TIMEOUT]);
    command.arg(env!("CARGO_BIN_EXE_pleach")).args(words);
    command.args([&own, "--exact", "over_ssh::as_a_rank", "--ignored", "--nocapture"]);
    without_settings(&mut command);
    for variable in manifest.container()["env"].as_array().expect("a list") {
        // What it takes from a secret is the token.
        let value = variable["value"].as_str().unwrap_or("correct horse");
        command.env(variable["name"].as_str().expect("a name"), value);
    }
    command.env("PLEACH_PODS", PODS.to_string()).env("JOB_COMPLETION_INDEX", index.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

#[test]
fn the_kubernetes_example_is_one_job_between_hosts() {
    let network = match namespaces::NamespaceNetwork::new(PODS) {
        Ok(network) => network,
        Err(error) => return namespaces::skip_test(error),
    };
    let manifest = Manifest::read();
    // What the headless service does.
    let names: String = (0..PODS)
        .map(|pod| format!("{} pleach-job-{pod}.pleach-job pleach-job-{pod}\n", network.host(pod).address()))
        .collect();
    let file: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pods-{}", std::process::id()));
    std::fs::write(&file, format!("127.0.0.1 localhost\n{names}")).expect("a file");
    let start = |pod| network.host(pod).start(&mut pod_command(&manifest, pod, &file)).expect("a pod starts");
    let pods: Vec<Child> = (0..PODS).map(start).collect();
    let ended: Vec<Output> = pods.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    std::fs::remove_file(file).expect("our file");
    for (pod, ended) in ended.iter().enumerate() {
        let said = text(&ended.stdout);
        assert!(ended.status.success(), "pod {pod}: {said}{}", text(&ended.stderr));
        assert_eq!(said.matches("summed 6 hosts 2").count(), 2, "pod {pod}: {said}");
    }
}
