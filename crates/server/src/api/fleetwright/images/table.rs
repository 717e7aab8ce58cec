//! The endpoints of images, in the order in which they are published.

use access::scope::Template::{self, AllOf, Scope};
use contract::patterns::DIGITS;

use super::super::on;
use super::{history, rollout, status, work};
use crate::api::endpoint::Verb::{Delete, Get, Post, Put};
use crate::api::endpoint::{Endpoint, PAGING, Query, each, query};

const IMAGES: &str = "Images";
const ONE: &str = "/image/<imageId>";
const SEEN: &[Query] = &[query("version", DIGITS)];

const STATUS: &[Query] = &[query("newerThan", DIGITS), query("wait", DIGITS)];
const LOG: &[Query] = &[query("from", DIGITS), query("wait", DIGITS)];

const MANAGE: Template = Scope("fleetwright:manage-image:<imageId>");
const READ: Template = Scope("fleetwright:get-image:<imageId>");
const WRITE: &[Template] = &[
    MANAGE,
    each(
        "providerId",
        "providers",
        "worker-manager:provider:<providerId>",
    ),
    each("secret", "secrets", "secrets:get:<secret>"),
];

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("createImage", Put, ONE)
        .runs(|call| Box::pin(super::create(call)))
        .input("image-request.json")
        .checked_by_handler()
        .output("image.json")
        .scopes(AllOf(WRITE))
        .about(IMAGES, "Create an image")
        .describe(
            "Stores the definition of an image: how it is built, and where it is uploaded. The \
             caller needs the scopes of all providers to which it is uploaded, and those of the \
             secrets of the secrets service that builds get. If a part is \
             invalid, nothing is stored, and the error names the place. The same request again \
             gets the same answer.",
        ),
    on("updateImage", Post, ONE)
        .runs(|call| Box::pin(super::update(call)))
        .input("image-request.json")
        .checked_by_handler()
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
        .checked_by_handler()
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
    on("imageStatus", Get, "/image/<imageId>/status")
        .runs(|call| Box::pin(status::show(call)))
        .query(STATUS)
        .output("image-status.json")
        .scopes(READ)
        .about(IMAGES, "Get the status of an image")
        .describe(
            "The builds with their uploads, from what machines of each target start, and the next \
             steps with their reasons. With `wait`, the reply waits up to this many seconds, 20 at \
             most, for a build with a higher number than `newerThan`.",
        ),
    on("listImageStatus", Get, "/images/status")
        .runs(|call| Box::pin(status::list(call)))
        .query(PAGING)
        .output("image-status-list.json")
        .scope("fleetwright:list-images")
        .about(IMAGES, "List the status of images")
        .describe("The status of all images, by name."),
    on("requestImageBuild", Post, "/image/<imageId>/build")
        .runs(|call| Box::pin(work::build(call)))
        .input("image-reason-request.json")
        .output("image-build-requested.json")
        .scopes(MANAGE)
        .about(IMAGES, "Request a build of an image")
        .describe(
            "A builder builds the image as soon as one is free, also if the last build is new. \
             While a request waits, further ones change nothing. The first build of a definition \
             meets the requests that come before it has ended. The reply says which build answers \
             the request, and why it does not begin now.",
        ),
    on("pauseImage", Post, "/image/<imageId>/pause")
        .runs(|call| Box::pin(work::pause(call)))
        .input("image-reason-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Pause an image")
        .describe(
            "Nothing is built or uploaded until the image is resumed. A running build goes on.",
        ),
    on("resumeImage", Post, "/image/<imageId>/resume")
        .runs(|call| Box::pin(work::resume(call)))
        .input("image-reason-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Resume an image")
        .describe(
            "Ends a pause.",
        ),
    on("cancelImageBuild", Post, "/image/<imageId>/builds/<build>/cancel")
        .runs(|call| Box::pin(work::cancel(call)))
        .input("image-reason-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Cancel a running build of an image")
        .describe(
            "The builder ends all processes of the build, which then has failed. The next one is \
             made on request, for another definition, or when a build is due by its age.",
        ),
    on("deleteImageBuild", Post, "/image/<imageId>/builds/<build>/delete")
        .runs(|call| Box::pin(work::delete_build(call)))
        .input("image-reason-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Delete a build of an image")
        .describe(
            "Builders delete its uploads, its files and then its record. The build from which \
             machines start is not deleted.",
        ),
    on("pinImageBuild", Post, "/image/<imageId>/builds/<build>/pin")
        .runs(|call| Box::pin(work::pin(call)))
        .input("image-reason-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Pin a build of an image")
        .describe(
            "The build is kept, however many newer ones there are, until it is unpinned.",
        ),
    on("unpinImageBuild", Post, "/image/<imageId>/builds/<build>/unpin")
        .runs(|call| Box::pin(work::unpin(call)))
        .input("image-reason-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Unpin a build of an image")
        .describe(
            "The build is deleted as others are.",
        ),
    on("promoteImageBuild", Post, "/image/<imageId>/builds/<build>/promote")
        .runs(|call| Box::pin(rollout::promote(call)))
        .input("image-reason-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Start machines from a build of an image")
        .describe(
            "New machines start from this build from now on. If it is older than the one in use, or \
             than the canary, the newer builds that are ready now are not used: they count as rolled \
             back, and those from which no machine started as passed over.",
        ),
    on("startImageCanary", Post, "/image/<imageId>/builds/<build>/canary")
        .runs(|call| Box::pin(rollout::start_canary(call)))
        .input("image-canary-request.json")
        .scopes(MANAGE)
        .about(IMAGES, "Start a canary of a build of an image")
        .describe(
            "A share of the new machines starts from the build, and the test decides whether all \
             do. Also tries a build again that was rolled back. A canary that runs is replaced.",
        ),
    on("imageBuildLog", Get, "/image/<imageId>/builds/<build>/log")
        .runs(|call| Box::pin(status::log(call)))
        .query(LOG)
        .output("image-build-log.json")
        .scopes(READ)
        .about(IMAGES, "Read the log of a build of an image")
        .describe(
            "A piece of the log from the byte `from` on. With `wait`, a reply about a running build \
             waits up to this many seconds for output, 20 at most. If another process builds it, \
             the server asks that process.",
        ),
    on("imageBuildProvenance", Get, "/image/<imageId>/builds/<build>/provenance")
        .runs(|call| Box::pin(status::provenance(call)))
        .output("image-provenance.json")
        .scopes(READ)
        .about(IMAGES, "Get the provenance of a build of an image")
        .describe(
            "The signed record of how the build was made, and whether it was signed with a key of \
             this deployment.",
        ),
];
