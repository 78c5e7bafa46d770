//! What is known of a call so far, written as its intent exactly once. Decides nothing.

use std::time::Instant;

use crate::audit::Audit;
use crate::audit::record::{Intent, Isolation};
use crate::config::Server;
use crate::downstream::instance::Confinement;
use crate::error::Fault;
use crate::gate::Decision;
use crate::name::{CallId, Principal, Role};
use crate::wire::Object;

use super::Caller;
use super::target::{Found, Target};

/// An intent that grows along the way.
pub(super) struct Trail {
    id: CallId,
    began: Instant,
    intent: Option<Intent>,
    denied: bool,
    refused: Option<Fault>,
}

impl Trail {
    /// What is known when a call comes in: nothing is decided, so it is denied until it is.
    pub fn new(caller: &Caller, role: Role, target: &Target<'_>, params: &str, audit: &Audit) -> Self {
        let (id, began) = (CallId::new(), Instant::now());
        let arguments = Object::parse(params).ok().and_then(|p| p.get("arguments").map(|a| a.get().to_owned()));
        let (exposed, server, tool) = match *target {
            Target::Exposed(name) => (Some(name.to_owned()), None, None),
            Target::Own { server, tool } => (None, Some(server.to_owned()), Some(tool.to_owned())),
        };
        let intent = Intent {
            call: id,
            principal: caller.id.as_deref().map(str::to_owned),
            actor: caller.actor.clone(),
            role,
            face: caller.face,
            session: Some(caller.session.clone()),
            client: caller.client.clone(),
            method: "tools/call".into(),
            exposed,
            server,
            tool,
            allow: false,
            policy: Vec::new(),
            args_bytes: arguments.as_ref().map_or(0, |a| a.len() as u64),
            args_hash: arguments.map(|a| audit.args_hash(a.as_bytes())),
            instance: None,
            image: None,
            isolation: None,
            evidence: None,
        };
        Trail { id, began, intent: Some(intent), denied: false, refused: None }
    }

    /// The same for a call that came in at that time.
    pub fn since(self, began: Instant) -> Self {
        Trail { began, ..self }
    }

    /// The call's identity.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// When it came in.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Whether the intent has been written.
    pub fn is_written(&self) -> bool {
        self.intent.is_none()
    }

    /// The target is known and decided on.
    pub fn decided(&mut self, principal: &Principal, found: &Found, decision: &Decision) {
        self.denied = !decision.allow;
        self.is_of(principal, &found.entry.server, decision);
        if let Some(intent) = &mut self.intent {
            intent.exposed = Some(found.exposed.clone());
            intent.tool = Some(found.tool.clone());
        }
    }

    /// Only the server is known, and that the caller may know of it.
    pub fn is_of(&mut self, principal: &Principal, server: &Server, decision: &Decision) {
        if let Some(intent) = &mut self.intent {
            intent.role = principal.role;
            intent.server = Some(server.name.as_str().to_owned());
            intent.allow = decision.allow;
            intent.policy.clone_from(&decision.policy);
            intent.isolation = Some(Isolation::NotRunning);
        }
    }

    /// The instance is known.
    pub fn runs_in(&mut self, confinement: &Confinement) {
        if let Some(intent) = &mut self.intent {
            intent.instance.clone_from(&confinement.container);
            intent.image.clone_from(&confinement.image);
            intent.isolation = Some(confinement.isolation);
            intent.evidence = confinement.digest();
        }
    }

    /// Whether the policy said no.
    pub fn denied(&self) -> bool {
        self.denied
    }

    /// Makes the intent durable, if that has not been done.
    pub async fn write(&mut self, audit: &Audit) -> Result<(), Fault> {
        if let Some(intent) = self.intent.take() {
            self.refused = audit.intent(intent).await.err();
        }
        // Without its intent a call must not leave, and has no outcome either.
        self.refused.clone().map_or(Ok(()), Err)
    }
}
