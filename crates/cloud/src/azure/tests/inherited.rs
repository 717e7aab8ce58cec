//! Machines that a Taskcluster's worker manager made.

use serde_json::{Value, json};

use super::site::{OnAzure, SUBNET, pool, put, row, single};
use crate::tests::values::edit;
use crate::{CloudError, LaunchedMachine, Machines as _, Region, Sighting};

const ID: &str = "vm-abcdefghijklmnopqrstuvwxyz012345678";
const NETWORK: &str = "/subscriptions/s-1/resourceGroups/ci/providers/Microsoft.Network";

fn tags(maker: &str) -> Value {
    json!({"created-by": maker, "managed-by": "taskcluster", "worker-pool-id": "proj-x/linux",
        "provider-id": "azure", "worker-group": "westus"})
}

impl OnAzure {
    /// A machine with its parts, as Taskcluster makes them one after the other.
    fn taskcluster_makes(&self, id: &str, maker: &str, n_disks: usize) {
        let make = |kind: &str, name: &str, properties: Value| {
            let body = json!({"location": "westus", "tags": tags(maker), "properties": properties});
            put(&self.fake, kind, name, body);
        };
        let (nic, address) = (format!("nic-of-{id}"), format!("pip-of-{id}"));
        make("Microsoft.Network/publicIPAddresses", &address, json!({}));
        let address = format!("{NETWORK}/publicIPAddresses/{address}");
        let configuration = json!({"name": "c", "properties": {"subnet": {"id": SUBNET},
            "publicIPAddress": {"id": address}}});
        make(
            "Microsoft.Network/networkInterfaces",
            &nic,
            json!({"ipConfigurations": [configuration]}),
        );
        let nic = format!("{NETWORK}/networkInterfaces/{nic}");
        let disk = |number: usize| json!({"lun": number, "createOption": "Empty", "name": format!("data-{number}-{id}")});
        let disks: Vec<Value> = (0..n_disks).map(disk).collect();
        make(
            "Microsoft.Compute/virtualMachines",
            id,
            json!({"hardwareProfile": {"vmSize": "Standard_F2"},
                "networkProfile": {"networkInterfaces": [{"id": nic}]},
                "storageProfile": {"dataDisks": disks,
                    "osDisk": {"createOption": "FromImage", "name": format!("os-{id}")}}}),
        );
    }

    async fn inherited(&self) -> Vec<LaunchedMachine> {
        let region = Region::Group("westus".parse().unwrap());
        let page = self.provider.inherited_page(&region, None).await.unwrap();
        page.machines.into_iter().map(|it| it.machine).collect()
    }
}

#[tokio::test]
async fn a_machine_of_a_taskcluster_ends_with_its_parts_only_if_it_was_taken_over() {
    let azure = OnAzure::start().await;
    azure.taskcluster_makes(ID, "taskcluster-wm-azure", 1);
    azure.taskcluster_makes("vm-of-another", "taskcluster-wm-azure2", 0);
    azure.launch(single(&json!({}))).await.unwrap();
    azure.fake.advance();
    let [found] = azure.inherited().await.try_into().unwrap();
    assert_eq!(found.id.as_str(), ID);
    let others = azure.fake.resources();

    let mut worker = row(&pool(), found);
    assert_eq!(azure.seen(&worker).await, Sighting::Alive);
    let refused = azure.provider.end(&worker).await.unwrap_err();
    assert!(matches!(refused, CloudError::Refused(_)), "{refused}");
    edit(&mut worker, |it| it.terms.taken_over = true);
    azure.end_completely(&worker).await;
    let left = azure.fake.resources();
    let is_of = |name: &&String| name.ends_with(ID);
    assert_eq!(others.iter().filter(is_of).count(), 5, "{others:?}");
    assert_eq!(left.iter().filter(is_of).count(), 0, "{left:?}");
    assert_eq!(
        others.len() - left.len(),
        5,
        "those of others stay: {left:?}"
    );
}
