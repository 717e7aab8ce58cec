-- Old versions of worker configurations and of images are deleted, the oldest first.

CREATE INDEX worker_configuration_versions_oldest ON worker_configuration_versions (created);
CREATE INDEX image_versions_oldest ON image_versions (created);
