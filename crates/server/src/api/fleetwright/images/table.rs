//! The endpoints of images, in the order in which they are published.

use access::scope::Template::{self, AllOf, Scope};
use contract::patterns::DIGITS;

use super::super::on;
use super::history;
use crate::api::endpoint::Verb::{Delete, Get, Post, Put};
use crate::api::endpoint::{Endpoint, PAGING, Query, each, query};

const IMAGES: &str = "Images";
const ONE: &str = "/image/<imageId>";
const SEEN: &[Query] = &[query("version", DIGITS)];

const MANAGE: Template = Scope("fleetwright:manage-image:<imageId>");
const READ: Template = Scope("fleetwright:get-image:<imageId>");
const WRITE: &[Template] = &[
    MANAGE,
    each(
        "providerId",
        "providers",
        "worker-manager:provider:<providerId>",
    ),
];

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("createImage", Put, ONE)
        .runs(|call| Box::pin(super::create(call)))
        .input("image-request.json")
        .output("image.json")
        .scopes(AllOf(WRITE))
        .about(IMAGES, "Create an image")
        .describe(
            "Stores the definition of an image: how it is built, and where it is uploaded. The \
             caller needs the scopes of all providers to which it is uploaded. If a part is \
             invalid, nothing is stored, and the error names the place. The same request again \
             gets the same answer.",
        ),
    on("updateImage", Post, ONE)
        .runs(|call| Box::pin(super::update(call)))
        .input("image-request.json")
        .output("image.json")
        .scopes(AllOf(WRITE))
        .about(IMAGES, "Update an image")
        .describe(
            "Replaces the definition. With `version`, the update is refused unless this is the \
             current version. `planImage` shows what the update makes necessary.",
        ),
    on("deleteImage", Delete, ONE)
        .runs(|call| Box::pin(super::delete(call)))
        .query(SEEN)
        .scopes(MANAGE)
        .about(IMAGES, "Delete an image")
        .describe("Its versions are kept, so that a revert can restore the definition."),
    on("image", Get, ONE)
        .runs(|call| Box::pin(super::show(call)))
        .output("image.json")
        .scopes(READ)
        .about(IMAGES, "Get an image")
        .describe("The current definition, and the number of this version."),
    on("listImages", Get, "/images")
        .runs(|call| Box::pin(super::list(call)))
        .query(PAGING)
        .output("image-list.json")
        .scope("fleetwright:list-images")
        .about(IMAGES, "List images")
        .describe("All images, without how they are built."),
    on("planImage", Post, "/image/<imageId>/plan")
        .runs(|call| Box::pin(super::plan(call)))
        .input("image-request.json")
        .output("image-plan.json")
        .scopes(READ)
        .about(IMAGES, "Plan an image")
        .describe(
            "Shows what an update to this definition would change, and for each change whether it \
             needs a new build or new uploads, or deletes uploads. Nothing is stored.",
        ),
    on("listImageVersions", Get, "/image/<imageId>/versions")
        .runs(|call| Box::pin(history::list(call)))
        .query(PAGING)
        .output("image-versions.json")
        .scopes(READ)
        .about(IMAGES, "List the versions of an image")
        .describe(
            "The author, time and kind of each change of the definition, newest first; also of a \
             deleted image.",
        ),
    on("imageVersion", Get, "/image/<imageId>/version/<version>")
        .runs(|call| Box::pin(history::show(call)))
        .output("image-version.json")
        .scopes(READ)
        .about(IMAGES, "Get a version of an image")
        .describe("The definition in this version."),
    on(
        "compareImageVersions",
        Get,
        "/image/<imageId>/difference/<from>/<to>",
    )
    .runs(|call| Box::pin(history::difference(call)))
    .output("image-difference.json")
    .scopes(READ)
    .about(IMAGES, "Compare two versions of an image")
    .describe("The changes from one version to the other, with their effects."),
    on("revertImage", Post, "/image/<imageId>/revert")
        .runs(|call| Box::pin(history::revert(call)))
        .input("revert-image-request.json")
        .output("image.json")
        .scopes(AllOf(WRITE))
        .about(IMAGES, "Revert an image")
        .describe("Makes an old version the newest, also of a deleted image."),
];
