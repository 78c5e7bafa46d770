//! Gives up everything, for good.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::named;

/// Becomes a user without groups and capabilities, and without a way back to any. There is one thread alone.
pub(crate) fn drop_all(user: u32) -> io::Result<()> {
    gone(user).map_err(|error| named("cannot give up its privileges", error))
}

fn gone(user: u32) -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    // A capability that this kernel does not know is in no set of it.
    let known = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    for capability in known.filter(|capability| capability_is_in_bounding_set(*capability).unwrap_or(false)) {
        remove_capability_from_bounding_set(capability)?;
    }
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    let left = capabilities(None)?;
    if left.effective | left.permitted | left.inheritable != none {
        return Err(io::Error::other("some are left"));
    }
    Ok(())
}
