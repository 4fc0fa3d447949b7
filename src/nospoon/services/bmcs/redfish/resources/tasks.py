"""TaskService, Tasks and their monitors (DSP0266 §12)."""

from __future__ import annotations

from starlette.responses import Response

from nospoon.services.bmcs.redfish.http.answers import ODATA, long, respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import OK, collection, ref, resource
from nospoon.services.bmcs.redfish.messages.jobs import Job, when
from nospoon.services.bmcs.redfish.messages.listings import BATCH
from nospoon.services.bmcs.redfish.messages.uris import ROOT

TASKS = "TaskService/Tasks"
MONITORS = "TaskService/TaskMonitors"
RETRY_AFTER = "1"


async def _service(exchange: Exchange) -> Response:
    return tagged(
        exchange,
        {
            **resource("TaskService", "TaskService", "TaskService", "Task Service"),
            "ServiceEnabled": True,
            "CompletedTaskOverWritePolicy": "Oldest",
            "LifeCycleEventOnTaskStateChange": False,
            "Status": OK,
            "Tasks": ref(TASKS),
        },
    )


def _job(exchange: Exchange) -> Job:
    wanted = exchange.request.path_params["task"]
    found = exchange.service.jobs.get(wanted, exchange.sees)
    if found is None:
        raise errors.not_found(exchange.path)
    return found


async def _all(exchange: Exchange) -> Response:
    paths, jobs = list[str](), exchange.service.jobs.all()
    for start in range(0, len(jobs), BATCH):
        await exchange.rest()
        some = jobs[start : start + BATCH]
        paths.extend(f"{TASKS}/{job.id}" for job in some if exchange.sees(job.system))
    return await long(exchange, collection("Task", TASKS, ()), paths)


async def _one(exchange: Exchange) -> Response:
    return tagged(exchange, shown(_job(exchange)))


def shown(job: Job) -> dict[str, object]:
    """Task."""
    failed = job.error is not None
    body = {
        **resource("Task", f"{TASKS}/{job.id}", job.id, job.name),
        "TaskState": job.state,
        "TaskStatus": "Critical" if failed else "OK",
        "StartTime": when(job.started),
        "PercentComplete": 100 if job.state == "Completed" else 0,
        "TaskMonitor": f"{ROOT}/{MONITORS}/{job.id}",
        "Messages": [errors.of(job.error).extended()] if job.error is not None else [],
    }
    return body if job.ended is None else {**body, "EndTime": when(job.ended)}


async def _monitor(exchange: Exchange) -> Response:
    """202 while it runs, then what the request would have been answered with."""
    job = _job(exchange)
    return respond(shown(job)) if job.shows_task and job.ended is not None else outcome(job)


def begun(job: Job) -> Response:
    """The answer to an update: always a Task, whose end its monitor tells."""
    place = f"{ROOT}/{MONITORS}/{job.id}"
    headers = {"Location": place, "Retry-After": RETRY_AFTER}
    return respond(shown(job), status=202, headers=headers)


def outcome(job: Job) -> Response:
    """The answer to the request that began this task, as far as it has one. Raises its error."""
    if job.ended is None:
        place = f"{ROOT}/{MONITORS}/{job.id}"
        headers = {"Location": place, "Retry-After": RETRY_AFTER}
        return respond(shown(job), status=202, headers=headers)
    if job.error is not None:
        raise errors.of(job.error)
    return Response(status_code=204, headers=ODATA)


RESOURCES = (
    Resource(f"{ROOT}/TaskService", {"GET": _service}),
    Resource(f"{ROOT}/{TASKS}", {"GET": _all}, lists=True),
    Resource(f"{ROOT}/{TASKS}/{{task}}", {"GET": _one}),
    Resource(f"{ROOT}/{MONITORS}/{{task}}", {"GET": _monitor}),
)
