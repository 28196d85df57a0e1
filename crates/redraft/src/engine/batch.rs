//! Several answers at once: those that are ready share canvas passes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::generate::LogitsSink;
use super::run::{Next, Run};
use super::session::extend_all;
use super::{
    CanvasPass, CanvasResult, Event, Generation, Philox, Request, Session, canvas_pass, canvas_passes,
};
use crate::{Error, Model};

/// The number of an answer of a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Answers that are made together, each of which joins and leaves between two steps whenever it likes. Prompts, lengths,
/// samplers and seeds are their own, and so are their bits: who else is there changes nothing.
pub struct Batch {
    jobs: Vec<Job>,
    joined: u64,
    most_rows: usize,
    interrupt: Option<Arc<AtomicBool>>,
}

struct Job {
    id: JobId,
    session: Session,
    run: Run,
    draws: Philox,
    /// Ended before its time.
    failed: Option<Error>,
}

/// An answer that is no longer in the batch: its session, for the next one, and what came of it.
pub struct Finished {
    /// The answer.
    pub id: JobId,
    /// Its session.
    pub session: Session,
    /// The answer, or what it ended with: [`Error::Interrupted`] where somebody wanted that.
    pub result: Result<Generation, Error>,
}

/// What is told of an answer that is being made; breaking ends it.
pub type OnJobEvent<'a> = dyn FnMut(JobId, &Event<'_>) -> ControlFlow<()> + 'a;

impl Batch {
    /// An empty one. Passes have at most `most_rows` rows, or those of one canvas where that has more. `interrupt` ends
    /// all answers, inside a pass too; one alone ends with [`stop`](Self::stop), between two steps.
    pub fn new(most_rows: usize, interrupt: Option<Arc<AtomicBool>>) -> Batch {
        Batch { jobs: Vec::new(), joined: 0, most_rows, interrupt }
    }

    /// Answers in it.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Adds an answer; what its session holds of the prompt is used. [`Request::interrupt`] is the batch's.
    ///
    /// # Errors
    /// What is wrong with the request, and memory that is not there; with the session.
    #[allow(clippy::result_large_err, reason = "the session goes back to where it came from")]
    pub fn join(
        &mut self,
        model: &mut Model,
        session: Session,
        request: Request,
        draws: Philox,
    ) -> Result<JobId, (Session, Error)> {
        let request = Request { interrupt: self.interrupt.clone(), ..request };
        let promised = self.jobs.iter().map(|job| job.run.will_take(model, &job.session));
        let promised = promised.fold(0, u64::saturating_add);
        match Run::new(model, &session, request, promised) {
            Err(e) => Err((session, e)),
            Ok(run) => {
                let id = JobId(self.joined);
                self.joined += 1;
                self.jobs.push(Job { id, session, run, draws, failed: None });
                Ok(id)
            }
        }
    }

    /// Ends an answer; [`round`](Self::round) hands it back.
    pub fn stop(&mut self, id: JobId) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.failed = Some(Error::Interrupted);
        }
    }

    /// Each answer takes part in a pass over a part of its prompt, or in a canvas pass. Returns those that are done.
    pub fn round(&mut self, model: &mut Model, on_event: &mut OnJobEvent<'_>) -> Vec<Finished> {
        if self.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            self.jobs.iter_mut().for_each(|job| job.failed = Some(Error::Interrupted));
        }
        let (mut reading, mut ready): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (i, job) in self.jobs.iter_mut().enumerate() {
            match job.advance(model, on_event) {
                Next::Read => reading.push(i),
                Next::Canvas => ready.push(i),
                Next::Again | Next::Done => {}
            }
        }
        for pass in [Next::Read, Next::Canvas] {
            let left = if pass == Next::Read { &mut reading } else { &mut ready };
            while let Some(&first) = left.first() {
                let group = self.group(left, pass);
                left.retain(|i| !group.contains(i));
                let together = match pass {
                    _ if group.len() < 2 => false,
                    Next::Read => self.read_together(&group, model),
                    _ => self.together(&group, model, on_event),
                };
                if !together {
                    // Alone, where one of them cannot be computed, so that only that one fails.
                    group.iter().for_each(|&i| self.jobs[i].alone(pass, model, on_event));
                }
                debug_assert!(group.contains(&first), "each turn ends");
            }
        }
        let (done, jobs) = std::mem::take(&mut self.jobs).into_iter().partition(Job::is_done);
        self.jobs = jobs;
        done.into_iter().map(|job: Job| job.finish(model)).collect()
    }

    /// The first of the `ready` answers, and those that can share its pass, a [`Next::Read`] or a [`Next::Canvas`].
    fn group(&self, ready: &[usize], pass: Next) -> Vec<usize> {
        let mut rows = 0usize;
        let mut group: Vec<usize> = Vec::new();
        for &i in ready {
            let run = &self.jobs[i].run;
            let reads = pass == Next::Read;
            let own = if reads { run.reads().len() } else { n_rows(&run.pass()) };
            let fits = group.first().is_none_or(|&first| {
                let first = &self.jobs[first].run;
                let same = first.request().profile.window == run.request().profile.window;
                let shares = reads || first.shares() && run.shares();
                same && shares && rows.saturating_add(own) <= self.most_rows
            });
            if fits {
                rows = rows.saturating_add(own);
                group.push(i);
            }
        }
        group
    }

    /// A prompt pass of these answers in one; whether it could be computed.
    fn read_together(&mut self, group: &[usize], model: &mut Model) -> bool {
        let request = Arc::clone(self.jobs[group[0]].run.request());
        model.arch.set_prompt_window(request.profile.window);
        let jobs = self.jobs.iter_mut().enumerate().filter(|(i, _)| group.contains(i));
        let mut list: Vec<(&mut Session, &[u32])> =
            jobs.map(|(_, job)| (&mut job.session, job.run.reads())).collect();
        // All of them watch the same flag.
        match extend_all(model, &mut list, &mut request.logits_sink(false)) {
            Err(Error::Interrupted) => {
                group.iter().for_each(|&i| self.jobs[i].failed = Some(Error::Interrupted));
                true
            }
            done => done.is_ok(),
        }
    }

    /// A step of these answers in one pass; whether it could be computed.
    fn together(&mut self, group: &[usize], model: &mut Model, on_event: &mut OnJobEvent<'_>) -> bool {
        model.arch.set_prompt_window(self.jobs[group[0]].run.request().profile.window);
        let passes: Vec<(&Session, CanvasPass<'_>)> =
            group.iter().map(|&i| (&self.jobs[i].session, self.jobs[i].run.pass())).collect();
        // All of them watch the same flag.
        let request = Arc::clone(self.jobs[group[0]].run.request());
        let mut sink = request.logits_sink(false);
        let results = match canvas_passes(model, &passes, &mut sink) {
            Ok(results) => results,
            Err(Error::Interrupted) => {
                group.iter().for_each(|&i| self.jobs[i].failed = Some(Error::Interrupted));
                return true;
            }
            Err(_) => return false,
        };
        for (&i, result) in group.iter().zip(results) {
            self.jobs[i].step(model, result, &mut sink, on_event);
        }
        true
    }
}

/// Rows of a pass.
fn n_rows(pass: &CanvasPass<'_>) -> usize {
    let rows = pass.lead.len() + pass.ids.len() + pass.tail.len();
    let guided = pass.sampling.is_some_and(|s| s.ask.cfg_scale > 0.0);
    rows.saturating_mul(1 + usize::from(guided))
}

impl Job {
    fn is_done(&self) -> bool {
        self.failed.is_some() || self.run.is_done()
    }

    /// Goes on to its next pass, and says which that is.
    fn advance(&mut self, model: &mut Model, on_event: &mut OnJobEvent<'_>) -> Next {
        let Job { id, session, run, draws, failed } = self;
        let request = Arc::clone(run.request());
        let mut sink = request.logits_sink(request.full_logits);
        while failed.is_none() {
            match run.advance(model, session, draws, &mut sink, &mut |event| on_event(*id, event)) {
                Ok(Next::Again) => {}
                Ok(next) => return next,
                Err(e) => *failed = Some(e),
            }
        }
        Next::Done
    }

    /// A pass of its own.
    fn alone(&mut self, pass: Next, model: &mut Model, on_event: &mut OnJobEvent<'_>) {
        let request = Arc::clone(self.run.request());
        model.arch.set_prompt_window(request.profile.window);
        let mut sink = request.logits_sink(request.full_logits);
        if pass == Next::Read {
            self.failed = self.session.extend(model, self.run.reads(), &mut sink).err();
            return;
        }
        match canvas_pass(model, &self.session, self.run.pass(), &mut sink) {
            Ok(result) => self.step(model, result, &mut sink, on_event),
            Err(e) => self.failed = Some(e),
        }
    }

    /// Takes the result of its pass.
    fn step(
        &mut self,
        model: &mut Model,
        result: CanvasResult,
        sink: &mut LogitsSink<'_>,
        on_event: &mut OnJobEvent<'_>,
    ) {
        let Job { id, session, run, draws, failed } = self;
        let done = run.step(model, session, draws, result, sink, &mut |event| on_event(*id, event));
        *failed = failed.take().or(done.err());
    }

    fn finish(self, model: &mut Model) -> Finished {
        let Job { id, session, run, failed, .. } = self;
        let result = run.finish(model, &session, failed.map_or(Ok(()), Err));
        Finished { id, session, result }
    }
}
