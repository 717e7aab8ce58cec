//! Files of Nodepool become images and rules.

use domain::id::ConfigurationId;
use files::{Format, parse};

use super::{MappedProvider, NodepoolConversion, NodepoolOptions, convert_nodepool};

const OPENSTACK: &str = "
elements-dir: /etc/nodepool/elements:/opt/elements
images-dir: /var/lib/nodepool/dib
zookeeper-servers:
  - { host: zk01.example.com, port: 2281 }
labels:
  - { name: debian-bookworm, min-ready: 2 }
  - { name: ubuntu-jammy-8GB, max-ready-age: 600 }
diskimages:
  - name: base
    abstract: true
    elements: [vm, simple-init]
    env-vars: { DIB_CHECKSUM: '1', TMPDIR: /opt/tmp }
    rebuild-age: 43200
    metadata: { owner: ci }
  - name: debian
    parent: base
    abstract: true
    elements: [debian-minimal]
    env-vars: { DIB_CHECKSUM: '0' }
    pause: true
  - name: bookworm
    parent: debian
    pause: false
    release: bookworm
    elements: [growroot]
    env-vars: { MIRROR: 'https://%(NODEPOOL_MIRROR)/debian' }
    username: zuul
  - name: jammy
    parent: base
    release: 22.04
    formats: [raw]
    keep-formats: [vhd]
    elements: [ubuntu-minimal]
    dib-cmd: sudo -E 'disk-image-create'
    delete-after-upload: true
    build-timeout: 3600
providers:
  - name: cloud-a
    driver: openstack
    cloud: mycloud
    region-name: one
    rate: 0.25
    launch-timeout: 600
    diskimages:
      - { name: bookworm, pause: true, meta: { key: value } }
      - { name: jammy }
    cloud-images:
      - { name: stock, username: ubuntu }
    pools:
      - name: main
        max-servers: 8
        availability-zones: [nova]
        networks: [private]
        labels:
          - { name: debian-bookworm, diskimage: bookworm, flavor-name: small, key-name: infra }
          - { name: ubuntu-jammy-8GB, cloud-image: stock, min-ram: 8000 }
";

const AWS: &str = "
labels: [{ name: builder }, { name: iron }, { name: unused, min-ready: -1 }]
diskimages:
  - { name: jammy, elements: [ubuntu-minimal, vm], dib-cmd: /opt/bin/dib, rebuild-age: 0 }
providers:
  - name: ec2-us-east-1
    driver: aws
    region-name: us-east-1
    image-format: ova
    diskimages: [{ name: jammy, architecture: x86_64, volume-type: gp3, iops: 100 }]
    pools:
      - name: 'a,b'
        max-servers: 5
        subnet-id: subnet-1
        security-group-id: sg-1
        labels: &labels
          - name: builder
            diskimage: jammy
            instance-type: m6i.large
            key-name: ci
            volume-size: 80
            volume-type: gp3
            use-spot: true
            imdsv2: required
            tags: { team: ci }
            iam-instance-profile: { name: worker }
            userdata: '#cloud-config'
      - name: public
        public-ipv4: true
        subnet-id: subnet-2
        labels: *labels
  - name: ec2-us-west-2
    driver: aws
    region-name: us-west-2
    cloud-images: [{ name: amazon, image-id: ami-1 }, { name: searched, image-filters: [] }]
    pools:
      - name: main
        max-servers: 3
        labels: [{ name: builder, cloud-image: amazon, instance-type: m5.large }]
  - name: racks
    driver: static
    pools:
      - name: main
        nodes: [{ name: host1.example.com, labels: [iron] }]
        labels: [{ name: iron }]
";

fn options(providers: &[(&str, &str, Option<&str>)]) -> NodepoolOptions {
    let mapped = providers.iter().map(|(name, id, kind)| {
        let kind = kind.map(|kind| kind.parse().unwrap());
        let id = id.parse().unwrap();
        ((*name).to_owned(), MappedProvider { id, kind })
    });
    NodepoolOptions {
        providers: mapped.collect(),
        configuration_id: "nodepool".parse::<ConfigurationId>().unwrap(),
        owner: Some("ci@example.com".to_owned()),
        max_capacity: 10,
    }
}

fn convert(
    text: &str,
    providers: &[(&str, &str, Option<&str>)],
) -> Result<NodepoolConversion, String> {
    let file = parse("nodepool.yaml", text, Format::Yaml).unwrap();
    convert_nodepool(&file, &options(providers)).map_err(|problems| {
        let lines = problems.iter().map(ToString::to_string);
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn remarks(converted: &NodepoolConversion) -> String {
    let remarks = converted.remarks.iter();
    let lines = remarks.map(|remark| format!("{}: {}", remark.place, remark.reason));
    lines.collect::<Vec<_>>().join("\n")
}

/// The images and the worker configuration of a result.
fn parts(converted: &NodepoolConversion) -> (&str, &str) {
    let labels = converted.text.find("workerConfigurations:").unwrap();
    converted.text.split_at(labels)
}

#[test]
fn images_inherit_as_in_nodepool() {
    let converted = convert(OPENSTACK, &[]).unwrap();
    insta::assert_snapshot!(parts(&converted).0, @r#"
    images:
      - imageId: bookworm
        description: from Nodepool
        build:
          elements: [vm, simple-init, debian-minimal, growroot]
          elementsPath: [/etc/nodepool/elements, /opt/elements]
          release: bookworm
        environment: { DIB_CHECKSUM: "0", MIRROR: https://%(NODEPOOL_MIRROR)/debian, TMPDIR: /opt/tmp }
        paused: true
        rebuildAgeSeconds: 43200
        uploads: [{ format: qcow2, options: { meta: { key: value } }, providerId: cloud-a }]
      - imageId: jammy
        description: from Nodepool
        build:
          command:
            - sudo
            - "-E"
            - disk-image-create
            - "-x"
            - "-t"
            - "raw,vhd,qcow2"
            - "--checksum"
            - "--no-tmpfs"
            - "-o"
            - "{output}"
            - "--"
            - vm
            - simple-init
            - ubuntu-minimal
        environment:
          DIB_CHECKSUM: "1"
          DIB_IMAGE_NAME: jammy
          DIB_RELEASE: "22.04"
          ELEMENTS_PATH: /etc/nodepool/elements:/opt/elements
          TMPDIR: /opt/tmp
        formats: [raw, vhd]
        rebuildAgeSeconds: 43200
        timeLimitSeconds: 3600
        uploads: [{ format: qcow2, providerId: cloud-a }]
    "#);
}

#[test]
fn labels_of_openstack_become_launch_configs_with_all_settings() {
    let converted = convert(OPENSTACK, &[]).unwrap();
    insta::assert_snapshot!(parts(&converted).1, @r#"
    workerConfigurations:
      - workerConfigurationId: nodepool
        description: the labels of a Nodepool
        workerTypes: [debian-bookworm, ubuntu-jammy-8gb]
        rules:
          - { ruleId: all labels, conditions: null, values: { owner: ci@example.com } }
          - ruleId: debian-bookworm
            conditions: { workerType: debian-bookworm }
            values:
              description: label debian-bookworm of Nodepool
              lifecycle: { registrationTimeout: 600 }
              maxCapacity: 8
              minCapacity: 2
              providers: { cloud-a: { exact: true, places: [{}] } }
          - ruleId: debian-bookworm cloud-a
            conditions: { provider: cloud-a, workerType: debian-bookworm }
            values:
              cloud-a:
                image: { "$image": bookworm }
                label: { flavor-name: small, key-name: infra }
                pool: { availability-zones: [nova], networks: [private] }
                workerConfig: {}
          - ruleId: ubuntu-jammy-8gb
            conditions: { workerType: ubuntu-jammy-8gb }
            values:
              description: label ubuntu-jammy-8GB of Nodepool
              lifecycle: { registrationTimeout: 600 }
              maxCapacity: 8
              providers: { cloud-a: { exact: true, places: [{}] } }
          - ruleId: ubuntu-jammy-8gb cloud-a
            conditions: { provider: cloud-a, workerType: ubuntu-jammy-8gb }
            values:
              cloud-a:
                image: stock
                label: { min-ram: 8000 }
                pool: { availability-zones: [nova], networks: [private] }
                workerConfig: {}
    "#);
}

#[test]
fn what_openstack_loses_is_remarked() {
    let converted = convert(OPENSTACK, &[]).unwrap();
    insta::assert_snapshot!(remarks(&converted), @r"
    /diskimages/0/metadata: providers mark their images themselves; further metadata goes into the options of an upload
    /diskimages/2/username: workers connect to the server themselves; no login is needed
    /diskimages/3/delete-after-upload: files are kept as long as their build, so that other builders can upload them
    /diskimages/2: it is paused, because its parent `debian` is
    /providers/0/region-name: the configuration of the provider names its region
    /providers/0/diskimages/0/pause: an upload cannot be paused by itself: pause the image, or remove the upload
    /providers/0/cloud-images/0/username: workers connect to the server themselves; no login is needed
    /providers/0/cloud: credentials are in the server's configuration of the provider
    /providers/0/rate: the server limits its calls to a provider by itself
    /providers/0: the provider `cloud-a` of the server must be `external` or `exec`, and understand launch configs with the settings of the driver openstack
    /labels/1/name: names of worker types are stricter: it becomes `ubuntu-jammy-8gb`
    /labels/1/max-ready-age: workers stop when they were idle for as long as their `workerConfig` says
    /providers/0/pools/0/max-servers: the labels of the pool share it; here each label may use all of it
    /labels/0/min-ready: it counts idle nodes; `minCapacity` counts all workers of the pool
    /images-dir: the configuration of a builder says it: see docs/image-builders.md
    /zookeeper-servers: the servers of the tree are in the configuration of server and builders: [tree]
    /diskimages/2/env-vars/MIRROR: Nodepool replaces %(NODEPOOL_MIRROR) by a variable of its environment; the text is kept: replace it
    ");
}

fn regions() -> NodepoolConversion {
    let mapped = [
        ("ec2-us-east-1", "aws", None),
        ("ec2-us-west-2", "aws", None),
    ];
    convert(AWS, &mapped).unwrap()
}

#[test]
fn regions_and_pools_of_aws_are_places_of_one_provider() {
    insta::assert_snapshot!(parts(&regions()).1, @r#"
    workerConfigurations:
      - workerConfigurationId: nodepool
        description: the labels of a Nodepool
        workerTypes: [builder, iron, unused]
        rules:
          - { ruleId: all labels, conditions: null, values: { owner: ci@example.com } }
          - ruleId: builder
            conditions: { workerType: builder }
            values:
              description: label builder of Nodepool
              maxCapacity: 18
              providers:
                aws:
                  exact: true
                  places:
                    - { pool: "a,b", region: us-east-1 }
                    - { pool: public, region: us-east-1 }
                    - { region: us-west-2 }
          - ruleId: "builder ec2-us-east-1 a,b"
            conditions: { pool: 'a\,b', provider: aws, region: us-east-1, workerType: builder }
            values:
              aws:
                launchConfig:
                  BlockDeviceMappings:
                    - { DeviceName: /dev/xvda, Ebs: { VolumeSize: 80, VolumeType: gp3 } }
                  IamInstanceProfile: { Name: worker }
                  ImageId: { "$image": jammy }
                  InstanceMarketOptions: { MarketType: spot }
                  InstanceType: m6i.large
                  KeyName: ci
                  MetadataOptions: { HttpEndpoint: enabled, HttpTokens: required }
                  SecurityGroupIds: [sg-1]
                  SubnetId: subnet-1
                  TagSpecifications: [{ ResourceType: instance, Tags: [{ Key: team, Value: ci }] }]
                region: us-east-1
          - ruleId: builder ec2-us-east-1 public
            conditions: { pool: public, provider: aws, region: us-east-1, workerType: builder }
            values:
              aws:
                launchConfig:
                  BlockDeviceMappings:
                    - { DeviceName: /dev/xvda, Ebs: { VolumeSize: 80, VolumeType: gp3 } }
                  IamInstanceProfile: { Name: worker }
                  ImageId: { "$image": jammy }
                  InstanceMarketOptions: { MarketType: spot }
                  InstanceType: m6i.large
                  KeyName: ci
                  MetadataOptions: { HttpEndpoint: enabled, HttpTokens: required }
                  NetworkInterfaces:
                    - { AssociatePublicIpAddress: true, DeviceIndex: 0, SubnetId: subnet-2 }
                  TagSpecifications: [{ ResourceType: instance, Tags: [{ Key: team, Value: ci }] }]
                region: us-east-1
          - ruleId: builder ec2-us-west-2
            conditions: { provider: aws, region: us-west-2, workerType: builder }
            values:
              aws: { launchConfig: { ImageId: ami-1, InstanceType: m5.large }, region: us-west-2 }
          - ruleId: iron
            conditions: { workerType: iron }
            values: { description: label iron of Nodepool, providers: { racks: {} } }
          - ruleId: unused
            conditions: { workerType: unused }
            values: { description: label unused of Nodepool }
    "#);
}

#[test]
fn images_of_aws_have_its_options() {
    let converted = regions();
    insta::assert_snapshot!(parts(&converted).0, @r"
    images:
      - imageId: jammy
        description: from Nodepool
        build: { elements: [ubuntu-minimal, vm], program: /opt/bin/dib }
        uploads:
          - format: raw
            options: { architecture: x86_64, volumeType: gp3 }
            providerId: aws
            region: us-east-1
    ");
    insta::assert_snapshot!(remarks(&converted), @r"
    /providers/0/diskimages/0/iops: uploads to this kind of provider have no such option
    /providers/2/pools/0/nodes/0: register this host as a worker of a `static` provider: see docs/worker.md
    /providers/0/image-format: images of the format ova cannot be imported: raw is used
    /diskimages/0/rebuild-age: 0 means only on request here, and always in Nodepool: a day is used
    /providers/0/pools/1: it has no `max-servers`: each of its labels gets a maxCapacity of 10; --max-capacity sets another
    /providers/0/pools/0/labels/0/userdata: the server writes the user data; the image starts the worker
    /providers/0/pools/1/labels/0/userdata: the server writes the user data; the image starts the worker
    /labels/2: no pool lists it: its worker type has no providers
    ");
}

#[test]
fn a_provider_can_be_mapped_to_another_kind() {
    let mapped = [("cloud-a", "local", Some("local"))];
    let converted = convert(OPENSTACK, &mapped).unwrap();
    assert!(
        converted
            .text
            .contains("{ format: tar, providerId: local }"),
        "{}",
        converted.text
    );
    let launch = "local: { image: { \"$image\": bookworm }, workerConfig: {} }";
    assert!(converted.text.contains(launch), "{}", converted.text);
    let remarks = remarks(&converted);
    let reason = "/labels/0/flavor-name: launch configs of this kind of provider have no such";
    assert!(remarks.contains(reason), "{remarks}");
}

#[test]
fn every_key_is_taken_over_or_has_a_remark() {
    let file = "
labels: [{ name: a, colour: red }]
diskimages: [{ name: i, elements: [vm], colour: red }]
providers:
  - name: p
    driver: fake
    colour: red
    diskimages: [{ name: i, colour: red }]
    pools: [{ name: main, max-servers: 1, colour: red, labels: [{ name: a, diskimage: i, colour: red }] }]
colour: red
";
    let converted = convert(file, &[]).unwrap();
    insta::assert_snapshot!(remarks(&converted), @r"
    /diskimages/0/colour: this import does not know the key
    /providers/0/diskimages/0/colour: this import does not know the key
    /providers/0/colour: this import does not know the key
    /labels/0/colour: this import does not know the key
    /providers/0/pools/0/labels/0/colour: launch configs of this kind of provider have no such setting
    /providers/0/pools/0/colour: launch configs of this kind of provider have no such setting
    /colour: this import does not know the key
    ");
    assert!(!converted.text.contains("colour"), "{}", converted.text);
}

#[test]
fn an_image_that_nodepool_never_builds_is_paused() {
    let file = "diskimages: [{ name: i, elements: [vm] }]";
    let converted = convert(file, &[]).unwrap();
    insta::assert_snapshot!(converted.text, @r"
    images:
      - imageId: i
        description: from Nodepool
        build: { elements: [vm] }
        formats: [qcow2]
        paused: true
    ");
    insta::assert_snapshot!(remarks(&converted), @r"
    /diskimages/0: no provider uses it and it lists no formats, so Nodepool never builds it: it is paused, with the format qcow2
    ");
}

#[test]
fn errors_name_their_places_and_come_together() {
    for (file, problems) in [
        ("[]", "must be a mapping, not a list"),
        ("{}", "it has neither disk images nor labels"),
        ("labels: 3", "/labels: must be a list, not 3\nit has neither disk images nor labels"),
        (
            "diskimages: [{ elements: [vm] }, { name: b, parent: x, elements: 3 }, 4]",
            "/diskimages/2: must be a mapping, not 4\n/diskimages/0: `name` is missing\n\
             /diskimages/1/elements: must be a list of texts, not 3\n/diskimages/1/parent: no disk \
             image is named `x`\n/diskimages/1: `elements` is missing, also in its parents",
        ),
        (
            "diskimages: [{ name: a, parent: b, elements: [x] }, { name: b, parent: a, elements: [x] }]",
            "/diskimages/1/parent: `a` is its own ancestor",
        ),
        (
            "diskimages: [{ name: a, elements: [x], formats: [RAW], dib-cmd: \"'\" }]",
            "/diskimages/0/dib-cmd: a quotation mark is not closed",
        ),
        (
            "diskimages: [{ name: a b, elements: [x], formats: [raw] }]",
            "/diskimages/0: no image can be made of disk image a b: /imageId: \"a b\" is not a \
             name of an image: it must match ^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,36}[a-zA-Z0-9])?$",
        ),
        (
            "diskimages: [{ name: a, elements: [x], env-vars: { A: true } }]",
            "/diskimages/0/env-vars/A: must be a text, not true: put it in quotes",
        ),
        (
            "labels: [{ name: a }, { name: A }, { name: '1' }]",
            "/labels/1/name: `A` and `a` would be one worker type, `a`\n/labels/2/name: no worker \
             type can be named after `1`",
        ),
        (
            "labels: [{ name: a }]\nproviders: [{ name: p.q }, { name: e, driver: aws }]",
            "/providers/0/name: \"p.q\" is not a provider id: it must match ^([a-zA-Z0-9-_]*)$: \
             map it to a provider of the server with --provider\n/providers/1: `region-name` is \
             missing: a provider of kind aws needs it",
        ),
        (
            "labels: [{ name: a }]\ndiskimages: [{ name: i, abstract: true }, { name: j, elements: [x] }]
providers: [{ name: p, diskimages: [{ name: i }, { name: k }], pools: [{ name: m, labels: [
    { name: a, diskimage: i }, { name: b }, { name: a, diskimage: j }, { name: a, diskimage: k },
    { name: a, diskimage: j, cloud-image: j } ] }] }]",
            "",
        ),
    ] {
        let found = convert(file, &[]).unwrap_err();
        if problems.is_empty() {
            insta::assert_snapshot!(found, @r"
            /providers/0/pools/0/labels/4: has both `diskimage` and `cloud-image`
            /providers/0/diskimages/0/name: the disk image `i` is abstract
            /providers/0/diskimages/1/name: no disk image is named `k`
            /providers/0/pools/0/labels/0/diskimage: the disk image `i` is abstract
            /providers/0/pools/0/labels/1/name: the file defines no label `b`
            /providers/0/pools/0/labels/2/diskimage: the provider `p` does not list the disk image `j`
            /providers/0/pools/0/labels/3/diskimage: no disk image is named `k`
            ");
        } else {
            assert_eq!(found, problems, "{file}");
        }
    }
}

#[test]
fn mappings_that_do_not_fit_are_errors() {
    let unknown = convert(AWS, &[("ec2", "aws", None)]).unwrap_err();
    assert_eq!(
        unknown,
        "/providers: no provider is named `ec2`, which is mapped"
    );
    let file = "labels: [{ name: a }]\nproviders: [{ name: p }, { name: q }]";
    let same = [("p", "x", None), ("q", "x", None)];
    let refused = convert(file, &same).unwrap_err();
    let text = "/providers/1: `p` and `q` are both mapped to the provider `x`, in the same region";
    assert_eq!(refused, text);
    let file =
        "labels: [{ name: a }]\nproviders: [{ name: p, driver: aws, region-name: r }, { name: q }]";
    let refused = convert(file, &same).unwrap_err();
    assert!(refused.contains("need different kinds"), "{refused}");
}

#[test]
fn inherited_settings_have_a_limit() {
    let value = "x".repeat(1 << 20);
    let children: String = (0..80)
        .map(|number| format!("  - {{ name: c{number}, parent: p, elements: [x] }}\n"))
        .collect();
    let file = format!(
        "diskimages:\n  - {{ name: p, abstract: true, env-vars: {{ A: {value} }} }}\n{children}"
    );
    let refused = convert(&file, &[]).unwrap_err();
    assert!(refused.contains("inherit more than"), "{refused}");
}
