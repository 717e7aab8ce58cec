//! The files with secrets that a configuration names.

use std::path::Path;

use cloud::image::ArtifactStoreSettings;

use super::Config;

impl Config {
    /// Files that no other user should read, beside the keys.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let clients = self.auth.static_clients.iter();
        let outside = self.auth.taskcluster.iter();
        let queue = self.queue.taskcluster.iter();
        let pulse = queue.clone().filter_map(|queue| queue.pulse.as_ref());
        let events = self.events.amqp.iter();
        let mail = self.notify.email.iter();
        let hooks = self.notify.webhook.iter();
        let tls = self.tls.iter();
        let openid = self.page.openid.iter();
        let strategies = self.strategies.values();
        let secrets_client = self.images.secrets_client.iter();
        let providers = self.providers.0.iter();
        tls.map(|tls| tls.key_file.as_path())
            .chain(strategies.filter_map(|strategy| strategy.secret_file.as_deref()))
            .chain(mail.filter_map(|mail| mail.password_file.as_deref()))
            .chain(hooks.filter_map(|hook| hook.secret_file.as_deref()))
            .chain(openid.filter_map(|openid| openid.client_secret_file.as_deref()))
            .chain(clients.filter_map(|client| client.access_token_file.as_deref()))
            .chain(outside.filter_map(|outside| outside.access_token_file.as_deref()))
            .chain(queue.filter_map(|queue| queue.access_token_file.as_deref()))
            .chain(events.filter_map(|amqp| amqp.url_file.as_deref()))
            .chain(pulse.filter_map(|amqp| amqp.url_file.as_deref()))
            .chain(providers.filter_map(|(_, provider)| provider.secret_file()))
            .chain(
                self.images
                    .secrets
                    .values()
                    .map(|secret| secret.file.as_path()),
            )
            .chain(secrets_client.map(|client| client.access_token_file.as_path()))
            .chain(self.images.artifacts.as_ref().and_then(artifacts_key))
            .chain(self.tree.secret_files())
            .chain(self.auth.websocktunnel_secret_file.as_deref())
            .chain(self.metrics.token_file.as_deref())
            .chain(self.traces.authorization_file.as_deref())
    }
}

fn artifacts_key(settings: &ArtifactStoreSettings) -> Option<&Path> {
    match settings {
        ArtifactStoreSettings::Folder(_) => None,
        ArtifactStoreSettings::Http(http) => http.secret_access_key_file.as_deref(),
    }
}
