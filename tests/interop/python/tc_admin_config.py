"""tc-admin's own configuration: the resources come ready-made, so nothing is generated here."""

from tcadmin.appconfig import AppConfig

appconfig = AppConfig()
