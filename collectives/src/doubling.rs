//! Recursive doubling, in pieces: what the algorithms by it have in common.
//!
//! Ranks beyond the largest power of two hand their vector to a neighbour; in round `i` the ranks at positions that
//! differ in bit `i` exchange their sums; those who stood aside get the result. A long vector is cut into equal
//! ranges of the index space, a message each, and a piece goes on to the next round as soon as it is summed: so the next
//! pieces are on the wire while this one is.
//! How many pieces a vector comes in its messages say ([`Frame::pieces`]), for ranks need not hold equally much: both
//! partners go on with the finer of their two cuts, which, being powers of two, nest. So all that have summed the same ranks
//! have summed the same pieces in the same order.

use std::future::Future;

use bytes::Bytes;
use sparse_core::wire::Frame;
use transport::Transport;

use crate::error::Error;
use crate::in_flight::{InFlight, Lane};
use crate::topology::{Fold, Role};

/// The most pieces that a vector is cut into to be summed.
pub(crate) const MOST_PIECES: usize = 32;

/// What one rank has summed so far.
pub(crate) trait Sums {
    /// How many pieces there may be.
    fn most_pieces(&self) -> usize;

    /// How many there are: a power of two.
    fn pieces(&self) -> usize;

    /// Cuts into so many pieces instead, a multiple of those there are.
    fn cut(&mut self, pieces: usize);

    /// A piece as a message.
    fn message(&self, piece: usize) -> Bytes;

    /// Adds what a peer has summed: a piece that covers one or more of this rank's.
    fn add(&mut self, theirs: Piece) -> Result<(), Error>;

    /// Takes a piece of the result in place of what was summed here.
    fn take(&mut self, result: Piece) -> Result<(), Error>;
}

/// A received piece.
pub(crate) struct Piece {
    pub(crate) frame: Frame,
    /// Its place among the [pieces](Frame::pieces).
    pub(crate) at: usize,
    pub(crate) from: Peer,
}

/// Whom a piece comes from.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) rank: usize,
    /// The round; none of a rank that stands aside, or from the one that sums for this one.
    pub(crate) round: Option<u32>,
    /// Whether it has summed lower ranks than this one.
    pub(crate) is_lower: bool,
}

/// Sums with all ranks.
pub(crate) async fn run<T: Transport>(
    operation: &InFlight<T>,
    sums: &mut (dyn Sums + Send + '_),
) -> Result<(), Error> {
    let fold = Fold::new(operation.world_size());
    let mut leaving = Vec::new();
    match fold.role(operation.rank()) {
        Role::Folded { into } => {
            leaving.extend((0..sums.pieces()).map(|at| operation.send(into, Lane::Reduce, sums.message(at))));
            let from = Peer { rank: into, round: None, is_lower: false };
            let mut result = arriving(operation, from, Lane::Gather, sums.most_pieces()).await?;
            while let Some(piece) = result.next().await? {
                sums.take(piece)?;
            }
        }
        Role::Active { position, from: aside } => {
            let partners = (0..fold.rounds()).map(|round| {
                let (rank, is_higher) = fold.partner(position, round);
                Peer { rank, round: Some(round), is_lower: !is_higher }
            });
            let hears = aside.map(|rank| Peer { rank, round: None, is_lower: true });
            let hears = hears.into_iter().chain(partners.clone());
            let tells = partners.map(|partner| (partner.rank, Lane::Reduce));
            let mut tells = tells.chain(aside.map(|rank| (rank, Lane::Gather)));
            if aside.is_none()
                && let Some((to, lane)) = tells.next()
            {
                leaving.extend((0..sums.pieces()).map(|at| operation.send(to, lane, sums.message(at))));
            }
            for from in hears {
                let to = tells.next();
                let mut theirs = arriving(operation, from, Lane::Reduce, sums.most_pieces()).await?;
                sums.cut(sums.pieces().max(theirs.pieces));
                let each = sums.pieces() / theirs.pieces;
                while let Some(piece) = theirs.next().await? {
                    let first = piece.at * each;
                    sums.add(piece)?;
                    if let Some((to, lane)) = to {
                        let done = first..first + each;
                        leaving.extend(done.map(|at| operation.send(to, lane, sums.message(at))));
                    }
                }
            }
        }
    }
    for sent in leaving {
        sent.await?;
    }
    Ok(())
}

/// The pieces from a peer, in their order.
struct Arriving<R> {
    from: Peer,
    pieces: usize,
    next: usize,
    first: Option<Frame>,
    /// Receives of the others.
    rest: std::vec::IntoIter<R>,
}

/// Waits for a peer's first piece, which says how many there are, and posts the receives of the others.
async fn arriving<T: Transport>(
    operation: &InFlight<T>,
    from: Peer,
    lane: Lane,
    most: usize,
) -> Result<Arriving<impl Future<Output = Result<Frame, Error>> + Send>, Error> {
    let first = operation.recv(from.rank, lane).await?;
    let pieces = first.pieces;
    if pieces > most {
        return Err(Error::malformed(from.rank, format!("a vector in {pieces} pieces, {most} at most")));
    }
    let rest: Vec<_> = (1..pieces).map(|_| operation.recv(from.rank, lane)).collect();
    Ok(Arriving { from, pieces, next: 0, first: Some(first), rest: rest.into_iter() })
}

impl<R: Future<Output = Result<Frame, Error>>> Arriving<R> {
    async fn next(&mut self) -> Result<Option<Piece>, Error> {
        let frame = match self.first.take() {
            Some(first) => first,
            None => match self.rest.next() {
                Some(next) => next.await?,
                None => return Ok(None),
            },
        };
        if frame.pieces != self.pieces {
            let detail = format!("a piece of {} after one of {}", frame.pieces, self.pieces);
            return Err(Error::malformed(self.from.rank, detail));
        }
        let piece = Piece { frame, at: self.next, from: self.from };
        self.next += 1;
        Ok(Some(piece))
    }
}
