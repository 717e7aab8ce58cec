//! The console of an instance.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::worker::Worker;

use super::AwsProvider;
use super::error::Ec2Error;
use super::machines::instances;
use super::parameters::Parameters;
use super::responses::GetConsoleOutput;
use crate::{CloudError, LogEnd, WorkerLog};

const ACTION: &str = "GetConsoleOutput";
/// Only newer types of instances have their latest output. EC2 refuses the question for others.
const NOT_LATEST: [&str; 1] = ["UnsupportedOperation"];

impl AwsProvider {
    /// Looks before it reads: a row may be wrong, for example after a database was restored, and
    /// machines that are not ours may write secrets of others.
    pub(super) async fn read_console(&self, worker: &Worker) -> Result<WorkerLog, CloudError> {
        let (region, id) = (worker.key.group.as_str(), worker.key.id.as_str());
        let found = self.find_known(region, &[id]).await?;
        let Some(instance) = instances(&found).next() else {
            return Ok(WorkerLog::Missing);
        };
        if !self.is_machine_of(worker, instance) {
            let refused = format!("instance {id} in {region} does not have our tags");
            return Err(CloudError::Refused(refused));
        }
        match self.console_output(region, id).await {
            Ok(output) => Ok(WorkerLog::Kept(LogEnd::of(output))),
            Err(error) if error.is_unknown_instance() => Ok(WorkerLog::Missing),
            Err(error) => Err(error.into()),
        }
    }

    async fn console_output(&self, region: &str, id: &str) -> Result<Vec<u8>, Ec2Error> {
        let of_start = Parameters::default().with("InstanceId", id);
        let latest = of_start.clone().with("Latest", true);
        let answer = match self.ec2.call(region, ACTION, &latest).await {
            Err(error) if error.has_code(&NOT_LATEST) => {
                self.ec2.call(region, ACTION, &of_start).await
            }
            answer => answer,
        };
        let GetConsoleOutput { output } = answer?;
        let mut text = output.unwrap_or_default();
        text.retain(|character| !character.is_ascii_whitespace());
        let unusable = |error| Ec2Error::Lost(format!("the output of {id} is not base64: {error}"));
        STANDARD.decode(text).map_err(unusable)
    }
}
